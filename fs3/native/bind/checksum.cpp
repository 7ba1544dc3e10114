#include <nanobind/nanobind.h>

#include "fs3/native/base/crc32c.h"
#include "fs3/native/bind/bind.h"
#include "fs3/native/bind/buffer.h"

namespace nb = nanobind;

namespace fs3::bind {
namespace {

uint32_t Checksum(nb::handle data, uint32_t previous) {
  BufferView view(data);
  nb::gil_scoped_release release;
  return Crc32c(view.data(), view.size(), previous);
}

}  // namespace

void BindChecksum(nb::module_& m) {
  m.def("crc32c", &Checksum, nb::arg("data"), nb::arg("previous") = 0,
        "CRC32C (Castagnoli, RFC 3720) of a buffer; `previous` continues an earlier one.");
  m.def("crc32c_combine", &Crc32cCombine, nb::arg("crc_a"), nb::arg("crc_b"), nb::arg("length_b"),
        "CRC32C of A||B from both CRCs and the length of B in bytes.");
}

}  // namespace fs3::bind
