#include "fs3/native/server/target_store.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <future>
#include <sstream>
#include <utility>

#include "fs3/native/chunk/rocks_meta_kv.h"
#include "fs3/native/chunk/sync_disk.h"
#include "fs3/native/chunk/target_files.h"

namespace fs3 {
namespace {

constexpr uint64_t kReserveMax = 1ULL << 30;

std::string IdentityText(const TargetIdentity& identity) {
  std::ostringstream text;
  text << "fs3-target 1\nid " << identity.id << "\ngeneration " << identity.generation << "\n";
  return text.str();
}

// What the directory says it is; empty when it is no target.
std::string ReadIdentity(const std::string& directory) {
  std::ifstream file(directory + "/target");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Status CheckIdentity(const TargetStoreOptions& options) {
  const std::string found = ReadIdentity(options.directory);
  const std::string wanted = IdentityText(options.identity);
  if (found == wanted) return Status::Ok();
  if (!found.empty()) {
    return {Code::kConflict, options.directory + " holds another target or generation"};
  }
  if (!options.create) return {Code::kNotFound, options.directory + " holds no target"};
  return Status::Ok();
}

// Last of all in formatting, so that a directory with an identity is complete.
Status WriteIdentity(const TargetStoreOptions& options) {
  if (!ReadIdentity(options.directory).empty()) return Status::Ok();
  const std::string path = options.directory + "/target";
  {
    std::ofstream file(path + ".new");
    file << IdentityText(options.identity) << std::flush;
    if (!file) return {Code::kInternal, "cannot write " + path};
  }
  std::error_code error;
  std::filesystem::rename(path + ".new", path, error);
  if (error) return {Code::kInternal, "cannot write " + path + ": " + error.message()};
  return Status::Ok();
}

std::string BootId() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

Result<uint64_t> Capacity(const TargetStoreOptions& options, const TargetFiles& files) {
  if (options.capacity_bytes != 0) return options.capacity_bytes;
  struct statvfs found;
  if (statvfs(options.directory.c_str(), &found) != 0) {
    return ErrnoStatus(errno, "statvfs " + options.directory);
  }
  const auto list = files.List();
  if (!list.ok()) return list.status();
  uint64_t own = 0;
  for (const auto& file : list.value()) own += file.size;
  return own + static_cast<uint64_t>(found.f_bavail) * found.f_frsize;
}

}  // namespace

TargetStore::~TargetStore() {
  chunks_.reset();  // before what it stands on
}

Result<std::unique_ptr<TargetStore>> TargetStore::Open(Loop& loop,
                                                       const TargetStoreOptions& options) {
  std::error_code error;
  std::filesystem::create_directories(options.directory, error);
  if (error) {
    return Status(Code::kInternal, "cannot make " + options.directory + ": " + error.message());
  }
  if (Status status = CheckIdentity(options); !status.ok()) return status;
  auto files = TargetFiles::Open(options.directory);
  if (!files.ok()) return files.status();
  const auto capacity = Capacity(options, *files.value());
  if (!capacity.ok()) return capacity.status();

  std::unique_ptr<TargetStore> store(new TargetStore());
  store->disk_ = std::make_unique<SyncDisk>(std::move(files.value()));
  auto kv = RocksMetaKv::Open(options.directory + "/meta",
                              [&loop](Function<void()> task) { (void)loop.Post(std::move(task)); });
  if (!kv.ok()) return kv.status();
  store->kv_ = std::move(kv.value());

  ChunkStoreOptions chunk_options;
  chunk_options.capacity_bytes = capacity.value();
  chunk_options.reserve_bytes = std::min(kReserveMax, capacity.value() / 50);
  chunk_options.boot_id = BootId();
  std::promise<Status> opened;
  const bool posted = loop.Post([&] {
    ChunkStore::Open(*store->disk_, *store->kv_, chunk_options,
                     [&](Result<std::unique_ptr<ChunkStore>> result) {
                       if (result.ok()) store->chunks_ = std::move(result.value());
                       opened.set_value(result.status());
                     });
  });
  if (!posted) return Status(Code::kUnavailable, "the storage server is stopping");
  if (Status status = opened.get_future().get(); !status.ok()) return status;
  if (Status status = WriteIdentity(options); !status.ok()) return status;
  return store;
}

}  // namespace fs3
