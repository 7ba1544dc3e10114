#include "fs3/native/frame/frame.h"

#include <nanobind/nanobind.h>

#include <algorithm>
#include <string>

#include "fs3/native/base/crc32c.h"
#include "fs3/native/bind/bind.h"
#include "fs3/native/net/counters.h"
#include "fs3/native/net/receiver.h"

namespace nb = nanobind;

namespace fs3::bind {
namespace {

std::span<const uint8_t> View(const nb::bytes& bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.c_str()), bytes.size()};
}

nb::bytes EncodeFrame(uint16_t method, uint64_t request_id, const nb::bytes& body,
                      const nb::bytes& bulk, uint32_t status, uint8_t flags) {
  FrameHeader header;
  header.method = method;
  header.request_id = request_id;
  header.status = status;
  header.flags = flags;
  header.bulk_length = static_cast<uint32_t>(bulk.size());
  header.bulk_crc32c = Crc32c(View(bulk));
  const FrameHeaderBytes head = EncodeFrameHeader(header, View(body));
  std::string out(head.begin(), head.end());
  out.append(body.c_str(), body.size()).append(bulk.c_str(), bulk.size());
  return nb::bytes(out.data(), out.size());
}

// Counts frames, keeping nothing.
class FrameCounter : public FrameSink {
 public:
  BulkTarget OnBulk(const FrameHeader& header, std::span<const uint8_t>) override {
    return BulkTarget::Into(Buffer::Allocate(header.bulk_length));
  }
  void OnFrame(Frame&) override { ++frames; }
  size_t frames = 0;
};

nb::tuple ScanFrames(const nb::bytes& stream) {
  FrameCounter counter;
  Receiver receiver(counter);
  std::span<const uint8_t> left = View(stream);
  Malformed malformed = Malformed::kNone;
  while (!left.empty() && malformed == Malformed::kNone) {
    size_t given = 0;
    for (const iovec& target : receiver.Targets()) {
      const size_t size = std::min(target.iov_len, left.size() - given);
      std::copy_n(left.data() + given, size, static_cast<uint8_t*>(target.iov_base));
      given += size;
    }
    left = left.subspan(given);
    malformed = receiver.Advance(given);
  }
  const std::string_view reason = MalformedName(malformed);
  return nb::make_tuple(counter.frames, nb::str(reason.data(), reason.size()));
}

nb::dict Counters() {
  nb::dict out;
  for (const auto& [name, value] : SumCounters()) out[name.c_str()] = value;
  return out;
}

}  // namespace

void BindFrame(nb::module_& m) {
  m.def("encode_frame", &EncodeFrame, nb::arg("method"), nb::arg("request_id"), nb::arg("body"),
        nb::arg("bulk") = nb::bytes("", 0), nb::arg("status") = 0, nb::arg("flags") = 0);
  m.def("scan_frames", &ScanFrames, nb::arg("stream"));
  m.def("counters", &Counters);
}

}  // namespace fs3::bind
