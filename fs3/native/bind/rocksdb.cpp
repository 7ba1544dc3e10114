#include "fs3/native/chunk/rocksdb.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "fs3/native/bind/bind.h"
#include "fs3/native/bind/error.h"

namespace nb = nanobind;

namespace fs3::bind {
namespace {

std::string_view View(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }
nb::bytes ToBytes(const std::string& text) { return nb::bytes(text.data(), text.size()); }
nb::object ToBytesOrNone(const std::optional<std::string>& text) {
  return text ? nb::object(ToBytes(*text)) : nb::none();
}

template <typename F>
auto Unlocked(F&& call) {
  nb::gil_scoped_release release;
  return call();
}

// A shared handle, so that close() during another thread's call ends when that call does.
class PyRocksDb {
 public:
  static PyRocksDb Open(const std::string& path, const RocksDbOptions& options) {
    nb::gil_scoped_release release;
    PyRocksDb out;
    out.db_ = ValueOrThrow(RocksDb::Open(path, options));
    return out;
  }

  nb::object Get(const nb::bytes& key) const {
    const auto db = Handle();
    return ToBytesOrNone(Unlocked([&] { return ValueOrThrow(db->Get(View(key))); }));
  }

  nb::list MultiGet(const nb::list& keys) const {
    const auto db = Handle();
    std::vector<nb::bytes> owners;
    std::vector<std::string_view> views;
    for (nb::handle key : keys) {
      owners.push_back(nb::cast<nb::bytes>(key));
      views.push_back(View(owners.back()));
    }
    const auto values = Unlocked([&] { return ValueOrThrow(db->MultiGet(views)); });
    nb::list out;
    for (const auto& value : values) out.append(ToBytesOrNone(value));
    return out;
  }

  nb::list Scan(const nb::bytes& begin, const nb::object& end, size_t limit, bool reverse) const {
    const auto db = Handle();
    std::optional<std::string_view> end_view;
    if (!end.is_none()) end_view = View(nb::cast<nb::bytes>(end));  // `end` keeps it alive
    const auto pairs =
        Unlocked([&] { return ValueOrThrow(db->Scan(View(begin), end_view, limit, reverse)); });
    nb::list out;
    for (const auto& [key, value] : pairs) {
      out.append(nb::make_tuple(ToBytes(key), ToBytes(value)));
    }
    return out;
  }

  void Write(const nb::iterable& entries, const nb::iterable& delete_ranges, bool sync) {
    const auto db = Handle();
    RocksDbBatch batch;
    for (nb::handle range : delete_ranges) {
      batch.DeleteRange(View(nb::cast<nb::bytes>(range[0])), View(nb::cast<nb::bytes>(range[1])));
    }
    for (nb::handle entry : entries) {
      const auto key = nb::cast<nb::bytes>(entry[0]);
      const nb::object value = nb::object(entry[1]);
      if (value.is_none()) {
        batch.Delete(View(key));
      } else {
        batch.Put(View(key), View(nb::cast<nb::bytes>(value)));
      }
    }
    Unlocked([&] { ThrowIfError(db->Write(batch, sync)); });
  }

  void SyncWal() {
    const auto db = Handle();
    Unlocked([&] { ThrowIfError(db->SyncWal()); });
  }

  void Close() {
    auto db = std::move(db_);
    Unlocked([&] { db.reset(); });
  }

 private:
  std::shared_ptr<RocksDb> Handle() const {
    if (!db_) throw StatusException({Code::kUnavailable, "the database is closed"});
    return db_;
  }

  std::shared_ptr<RocksDb> db_;
};

}  // namespace

void BindRocksDb(nb::module_& m) {
  nb::class_<PyRocksDb>(m, "RocksDb",
                        "An ordered key-value store in one directory. A written batch is atomic "
                        "and survives kill -9; with `sync` or a later `sync_wal` also power loss.")
      .def_static(
          "open",
          [](const std::string& path, bool create, uint64_t write_buffer_bytes,
             uint64_t block_cache_bytes, uint64_t wal_bytes_max) {
            RocksDbOptions options;
            options.create = create;
            options.write_buffer_bytes = write_buffer_bytes;
            options.block_cache_bytes = block_cache_bytes;
            options.wal_bytes_max = wal_bytes_max;
            return PyRocksDb::Open(path, options);
          },
          nb::arg("path"), nb::kw_only(), nb::arg("create") = true,
          nb::arg("write_buffer_bytes") = RocksDbOptions().write_buffer_bytes,
          nb::arg("block_cache_bytes") = RocksDbOptions().block_cache_bytes,
          nb::arg("wal_bytes_max") = RocksDbOptions().wal_bytes_max,
          "Opens the database. NativeError: BUSY if it is open elsewhere, NOT_FOUND without "
          "`create`.")
      .def("get", &PyRocksDb::Get, nb::arg("key"), "The value, or None.")
      .def("multi_get", &PyRocksDb::MultiGet, nb::arg("keys"), "Values in the order of `keys`.")
      .def("scan", &PyRocksDb::Scan, nb::arg("begin"), nb::arg("end").none(), nb::arg("limit"),
           nb::arg("reverse") = false,
           "Up to `limit` pairs with begin <= key < end (no end if None), the last ones first if "
           "`reverse`.")
      .def("write", &PyRocksDb::Write, nb::arg("batch"), nb::arg("delete_ranges") = nb::tuple(),
           nb::arg("sync") = false,
           "Applies `delete_ranges` [begin, end), then the entries in order (None deletes), all "
           "or nothing.")
      .def("sync_wal", &PyRocksDb::SyncWal, "Makes all earlier writes survive power loss.")
      .def("close", &PyRocksDb::Close, "Releases the directory; closing twice does nothing.");
}

}  // namespace fs3::bind
