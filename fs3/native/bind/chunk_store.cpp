#include "fs3/native/chunk/chunk_store.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <condition_variable>
#include <mutex>

#include "fs3/native/bind/bind.h"
#include "fs3/native/bind/buffer.h"
#include "fs3/native/bind/error.h"
#include "fs3/native/chunk/fake_disk.h"
#include "fs3/native/chunk/rocks_meta_kv.h"
#include "fs3/native/chunk/sync_disk.h"

namespace nb = nanobind;

namespace fs3::bind {
namespace {

using PyChunk = std::pair<uint64_t, uint32_t>;            // inode, index
using PyVersion = std::pair<uint64_t, uint64_t>;          // chain version, sequence
using PyOnce = std::tuple<uint64_t, uint32_t, uint64_t>;  // client, channel, sequence

ChunkId ToChunk(const PyChunk& chunk) { return {chunk.first, chunk.second, 0, 0}; }
Version ToVersion(const PyVersion& version) { return {version.first, version.second}; }
PyVersion FromVersion(const Version& version) { return {version.chain_version, version.sequence}; }

// Tasks from the metadata thread, run by whoever waits for an answer.
class Mailbox {
 public:
  void Post(Function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    wake_.notify_one();
  }
  void WaitAndRun() {
    std::vector<Function<void()>> tasks;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return !tasks_.empty(); });
      tasks.swap(tasks_);
    }
    for (auto& task : tasks) task();
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Function<void()>> tasks_;
};

// Disk and metadata in memory, with power cuts.
struct FakeMachine {
  explicit FakeMachine(uint64_t seed) : power(seed), disk(power), kv(power) {}
  FakeMachine(const FakeMachine&) = delete;
  FakeMachine& operator=(const FakeMachine&) = delete;
  void LosePower() {
    disk.LosePower();
    kv.LosePower();
    power.Restore();
  }
  FakePower power;
  FakeDisk disk;
  MemoryMetaKv kv;
};

struct UpdateArguments {
  PyVersion version;
  uint32_t chunk_size;
  uint64_t truncate_version;
  std::optional<PyOnce> once;
  bool use_reserve;
};

// A store whose calls wait for their answer. One caller at a time.
class PyChunkStore {
 public:
  static std::unique_ptr<PyChunkStore> Open(const std::string& directory,
                                            const ChunkStoreOptions& options) {
    nb::gil_scoped_release release;
    auto out = std::make_unique<PyChunkStore>();
    out->disk_ = std::make_unique<SyncDisk>(ValueOrThrow(TargetFiles::Open(directory)));
    out->kv_ = ValueOrThrow(RocksMetaKv::Open(
        directory + "/meta",
        [mailbox = &out->mailbox_](Function<void()> task) { mailbox->Post(std::move(task)); }));
    out->OpenOn(*out->disk_, *out->kv_, options);
    return out;
  }

  static std::unique_ptr<PyChunkStore> OpenFake(FakeMachine& machine,
                                                const ChunkStoreOptions& options) {
    nb::gil_scoped_release release;
    auto out = std::make_unique<PyChunkStore>();
    out->OpenOn(machine.disk, machine.kv, options);
    return out;
  }

  PyChunkStore() = default;
  PyChunkStore(const PyChunkStore&) = delete;
  PyChunkStore& operator=(const PyChunkStore&) = delete;
  ~PyChunkStore() {
    if (!store_) return;  // closed, or a failed open that holds no interpreter lock
    nb::gil_scoped_release release;
    (void)CloseStore();  // whoever wants to know calls close()
  }

  nb::tuple Write(const PyChunk& chunk, uint32_t offset, nb::handle data,
                  const UpdateArguments& arguments) {
    Update update = MakeUpdate(chunk, UpdateKind::kWrite, arguments);
    const BufferView view(data);
    update.offset = offset;
    update.data = {static_cast<const uint8_t*>(view.data()), view.size()};
    return Prepare(update);
  }

  nb::tuple Replace(const PyChunk& chunk, nb::handle data, bool tombstone,
                    const UpdateArguments& arguments) {
    Update update = MakeUpdate(chunk, UpdateKind::kReplace, arguments);
    const BufferView view(data);
    update.data = {static_cast<const uint8_t*>(view.data()), view.size()};
    update.tombstone = tombstone;
    return Prepare(update);
  }

  nb::tuple SetLength(UpdateKind kind, const PyChunk& chunk, uint32_t length,
                      const UpdateArguments& arguments) {
    Update update = MakeUpdate(chunk, kind, arguments);
    update.length = length;
    return Prepare(update);
  }

  void Commit(const PyChunk& chunk, const PyVersion& version) {
    nb::gil_scoped_release release;
    const std::lock_guard lock(mutex_);
    ThrowIfError(Store().Commit(ToChunk(chunk), ToVersion(version)));
  }

  void Abandon(const PyChunk& chunk, const PyVersion& version) {
    nb::gil_scoped_release release;
    const std::lock_guard lock(mutex_);
    ThrowIfError(Store().Abandon(ToChunk(chunk), ToVersion(version)));
  }

  void Forget(const PyChunk& chunk, const PyVersion& version) {
    AwaitDone(
        [&](auto done) { Store().Forget(ToChunk(chunk), ToVersion(version), std::move(done)); });
  }

  nb::bytes Read(const PyChunk& chunk, uint32_t offset, uint32_t length,
                 const std::optional<PyVersion>& version) {
    std::string bytes(std::min(length, kChunkSizeMax), '\0');
    ReadRequest request{ToChunk(chunk), offset, static_cast<uint32_t>(bytes.size()), std::nullopt,
                        reinterpret_cast<uint8_t*>(bytes.data())};
    if (version) request.version = ToVersion(*version);
    const ReadResult result =
        Await<ReadResult>([&](auto done) { Store().Read(request, std::move(done)); });
    return nb::bytes(bytes.data(), result.size);
  }

  nb::dict Stat(const PyChunk& chunk) {
    return Describe(
        Await<ChunkInfo>([&](auto done) { Store().Stat(ToChunk(chunk), std::move(done)); }));
  }

  nb::list List(const PyChunk& from, size_t limit) {
    const ChunkList list =
        Await<ChunkList>([&](auto done) { Store().List(ToChunk(from), limit, std::move(done)); });
    nb::list out;
    for (const ChunkInfo& info : list.chunks) out.append(Describe(info));
    return out;
  }

  void Flush() {
    AwaitDone([&](auto done) { Store().Flush(std::move(done)); });
  }

  std::vector<PyChunk> PendingChunks() {
    const std::lock_guard lock(mutex_);
    std::vector<PyChunk> out;
    for (const ChunkId& chunk : Store().PendingChunks()) out.emplace_back(chunk.inode, chunk.index);
    return out;
  }

  nb::dict SpaceNow() {
    const std::lock_guard lock(mutex_);
    const Space space = Store().space();
    nb::dict out;
    out["capacity"] = space.capacity;
    out["used"] = space.used;
    out["free"] = space.free;
    out["reserved"] = space.reserved;
    return out;
  }

  nb::dict Counters() {
    const std::lock_guard lock(mutex_);
    const StoreCounters counters = Store().counters();
    nb::dict out;
    out["chunks"] = counters.chunks;
    out["reads"] = counters.reads;
    out["updates"] = counters.updates;
    out["corrupt_granules"] = counters.corrupt_granules;
    out["dropped_at_open"] = counters.dropped_at_open;
    out["user_bytes"] = counters.user_bytes;
    out["block_bytes"] = counters.block_bytes;
    out["log_bytes"] = counters.log_bytes;
    out["metadata_bytes"] = counters.metadata_bytes;
    out["merged_chunks"] = counters.merged_chunks;
    out["folded_chunks"] = counters.folded_chunks;
    out["failed_folds"] = counters.failed_folds;
    out["flushes"] = counters.flushes;
    return out;
  }

  void Close() {
    nb::gil_scoped_release release;
    ThrowIfError(CloseStore());
  }

 private:
  void OpenOn(Disk& disk, MetaKv& kv, const ChunkStoreOptions& options) {
    std::optional<Result<std::unique_ptr<ChunkStore>>> result;
    ChunkStore::Open(disk, kv, options, [&](auto opened) { result.emplace(std::move(opened)); });
    while (!result) mailbox_.WaitAndRun();
    store_ = ValueOrThrow(std::move(*result));
  }

  Status CloseStore() {
    const std::lock_guard lock(mutex_);
    Status status;
    if (store_) {
      bool closed = false;
      store_->Close([&](Status result) {
        status = std::move(result);
        closed = true;
      });
      while (!closed) mailbox_.WaitAndRun();
    }
    store_.reset();
    kv_.reset();
    disk_.reset();
    return status;
  }

  ChunkStore& Store() const {
    if (!store_) throw StatusException({Code::kUnavailable, "the chunk store is closed"});
    return *store_;
  }

  template <typename T, typename Start>
  T Await(Start start) {
    nb::gil_scoped_release release;
    const std::lock_guard lock(mutex_);
    std::optional<Result<T>> result;
    start([&](Result<T> answer) { result.emplace(std::move(answer)); });
    while (!result) mailbox_.WaitAndRun();
    return ValueOrThrow(std::move(*result));
  }

  template <typename Start>
  void AwaitDone(Start start) {
    nb::gil_scoped_release release;
    const std::lock_guard lock(mutex_);
    std::optional<Status> status;
    start([&](Status answer) { status = std::move(answer); });
    while (!status) mailbox_.WaitAndRun();
    ThrowIfError(*status);
  }

  nb::tuple Prepare(const Update& update) {
    const Prepared prepared =
        Await<Prepared>([&](auto done) { Store().Prepare(update, std::move(done)); });
    return nb::make_tuple(FromVersion(prepared.version), prepared.length, prepared.duplicate);
  }

  static Update MakeUpdate(const PyChunk& chunk, UpdateKind kind,
                           const UpdateArguments& arguments) {
    Update update;
    update.chunk = ToChunk(chunk);
    update.kind = kind;
    update.version = ToVersion(arguments.version);
    update.chunk_size = arguments.chunk_size;
    update.truncate_version = arguments.truncate_version;
    update.use_reserve = arguments.use_reserve;
    if (arguments.once) {
      const auto& [client, channel, sequence] = *arguments.once;
      update.once = OnceRecord{client, channel, sequence, {}, 0};
    }
    return update;
  }

  static nb::dict Describe(const VersionInfo& info) {
    nb::dict out;
    out["version"] = FromVersion(info.version);
    out["length"] = info.length;
    out["truncate_version"] = info.truncate_version;
    out["tombstone"] = info.tombstone;
    return out;
  }

  static nb::dict Describe(const ChunkInfo& info) {
    nb::dict out;
    out["chunk"] = PyChunk(info.chunk.inode, info.chunk.index);
    out["chunk_size"] = info.chunk_size;
    out["committed"] = info.committed ? nb::object(Describe(*info.committed)) : nb::none();
    nb::list pending;
    for (const VersionInfo& version : info.pending) pending.append(Describe(version));
    out["pending"] = pending;
    return out;
  }

  std::mutex mutex_;
  Mailbox mailbox_;
  std::unique_ptr<Disk> disk_;  // of a store in a directory
  std::unique_ptr<MetaKv> kv_;
  std::unique_ptr<ChunkStore> store_;
};

ChunkStoreOptions MakeOptions(uint64_t capacity_bytes, uint64_t reserve_bytes,
                              uint64_t record_cache_bytes, uint64_t log_segment_bytes,
                              const std::string& boot_id) {
  ChunkStoreOptions options;
  options.capacity_bytes = capacity_bytes;
  options.reserve_bytes = reserve_bytes;
  options.record_cache_bytes = record_cache_bytes;
  options.log_segment_bytes = log_segment_bytes;
  options.boot_id = boot_id;
  return options;
}

// The keyword arguments every update takes, appended to its own.
template <typename F, typename... Arguments>
void DefineUpdate(nb::class_<PyChunkStore>& type, const char* name, F call, const char* doc,
                  const Arguments&... arguments) {
  type.def(name, call, nb::arg("chunk"), nb::arg("version"), arguments..., nb::kw_only(),
           nb::arg("chunk_size") = 1U << 20, nb::arg("truncate_version") = 0,
           nb::arg("once") = nb::none(), nb::arg("use_reserve") = false, doc);
}

void BindUpdates(nb::class_<PyChunkStore>& type) {
  DefineUpdate(
      type, "write",
      [](PyChunkStore& store, const PyChunk& chunk, const PyVersion& version, uint32_t offset,
         nb::handle data, uint32_t chunk_size, uint64_t truncate_version,
         const std::optional<PyOnce>& once, bool use_reserve) {
        return store.Write(chunk, offset, data,
                           {version, chunk_size, truncate_version, once, use_reserve});
      },
      "Prepares a write; returns (version, chunk length in bytes, was a duplicate).",
      nb::arg("offset"), nb::arg("data"));
  DefineUpdate(
      type, "replace",
      [](PyChunkStore& store, const PyChunk& chunk, const PyVersion& version, nb::handle data,
         bool tombstone, uint32_t chunk_size, uint64_t truncate_version,
         const std::optional<PyOnce>& once, bool use_reserve) {
        return store.Replace(chunk, data, tombstone,
                             {version, chunk_size, truncate_version, once, use_reserve});
      },
      "Prepares the whole state of the chunk, at any version.", nb::arg("data"),
      nb::arg("tombstone") = false);
  const auto set_length = [](UpdateKind kind) {
    return [kind](PyChunkStore& store, const PyChunk& chunk, const PyVersion& version,
                  uint32_t length, uint32_t chunk_size, uint64_t truncate_version,
                  const std::optional<PyOnce>& once, bool use_reserve) {
      return store.SetLength(kind, chunk, length,
                             {version, chunk_size, truncate_version, once, use_reserve});
    };
  };
  DefineUpdate(type, "truncate", set_length(UpdateKind::kTruncate),
               "Prepares a cut to at most `length` bytes.", nb::arg("length"));
  DefineUpdate(type, "extend", set_length(UpdateKind::kExtend),
               "Prepares growth to at least `length` bytes, with zeros.", nb::arg("length"));
  DefineUpdate(
      type, "remove",
      [](PyChunkStore& store, const PyChunk& chunk, const PyVersion& version, uint32_t chunk_size,
         uint64_t truncate_version, const std::optional<PyOnce>& once, bool use_reserve) {
        return store.SetLength(UpdateKind::kRemove, chunk, 0,
                               {version, chunk_size, truncate_version, once, use_reserve});
      },
      "Prepares a tombstone.");
}

void BindFakeMachine(nb::module_& m) {
  nb::class_<FakeMachine>(m, "FakeMachine",
                          "Disk and metadata in memory, for tests: what is not flushed may be lost "
                          "or torn by lose_power.")
      .def(nb::init<uint64_t>(), nb::arg("seed"))
      .def(
          "cut_power_after",
          [](FakeMachine& machine, uint64_t operations) { machine.power.CutAfter(operations); },
          nb::arg("operations"), "All disk and metadata operations fail from that one on.")
      .def("lose_power", &FakeMachine::LosePower,
           "Leaves what a machine finds after a power cut. No store may be open on it.")
      .def_prop_ro("operations",
                   [](const FakeMachine& machine) { return machine.power.operations(); })
      .def_prop_ro("is_on", [](const FakeMachine& machine) { return machine.power.is_on(); });
}

}  // namespace

void BindChunkStore(nb::module_& m) {
  BindFakeMachine(m);
  nb::class_<PyChunkStore> type(
      m, "ChunkStore",
      "The chunks of one target; for tests and tools, each call waits. Chunks are (inode, index), "
      "versions (chain version, sequence). Failures raise NativeError.");
  const ChunkStoreOptions defaults;
  type.def_static(
          "open",
          [](const std::string& directory, uint64_t capacity_bytes, uint64_t reserve_bytes,
             uint64_t record_cache_bytes, uint64_t log_segment_bytes, const std::string& boot_id) {
            return PyChunkStore::Open(directory,
                                      MakeOptions(capacity_bytes, reserve_bytes, record_cache_bytes,
                                                  log_segment_bytes, boot_id));
          },
          nb::arg("directory"), nb::kw_only(), nb::arg("capacity_bytes"),
          nb::arg("reserve_bytes") = 0, nb::arg("record_cache_bytes") = defaults.record_cache_bytes,
          nb::arg("log_segment_bytes") = defaults.log_segment_bytes, nb::arg("boot_id") = "",
          "Opens or creates the store of a target directory. BUSY: another process has it.")
      .def_static(
          "open_fake",
          [](FakeMachine& machine, uint64_t capacity_bytes, uint64_t reserve_bytes,
             uint64_t record_cache_bytes, uint64_t log_segment_bytes) {
            return PyChunkStore::OpenFake(
                machine, MakeOptions(capacity_bytes, reserve_bytes, record_cache_bytes,
                                     log_segment_bytes, ""));
          },
          nb::arg("machine"), nb::kw_only(), nb::arg("capacity_bytes"),
          nb::arg("reserve_bytes") = 0, nb::arg("record_cache_bytes") = defaults.record_cache_bytes,
          nb::arg("log_segment_bytes") = defaults.log_segment_bytes, nb::keep_alive<0, 1>(),
          "Opens a store on a fake machine.")
      .def("commit", &PyChunkStore::Commit, nb::arg("chunk"), nb::arg("version"))
      .def("abandon", &PyChunkStore::Abandon, nb::arg("chunk"), nb::arg("version"))
      .def("forget", &PyChunkStore::Forget, nb::arg("chunk"), nb::arg("version"))
      .def("read", &PyChunkStore::Read, nb::arg("chunk"), nb::arg("offset"), nb::arg("length"),
           nb::arg("version") = nb::none())
      .def("stat", &PyChunkStore::Stat, nb::arg("chunk"))
      .def("list_chunks", &PyChunkStore::List, nb::arg("begin"), nb::arg("limit"))
      .def("pending_chunks", &PyChunkStore::PendingChunks)
      .def("space", &PyChunkStore::SpaceNow)
      .def("counters", &PyChunkStore::Counters)
      .def("flush", &PyChunkStore::Flush)
      .def("close", &PyChunkStore::Close);
  BindUpdates(type);
}

}  // namespace fs3::bind
