#include "fs3/native/frame/replication.h"

#include <bit>
#include <cstring>

namespace fs3 {
namespace {

constexpr uint8_t kKindWrite = 1;
constexpr uint8_t kKindReplace = 4;
constexpr uint32_t kChunkBytesMin = 64U << 10;
constexpr uint32_t kChunkBytesMax = 64U << 20;

Status Refuse(const char* why) { return {Code::kInvalidArgument, why}; }

template <typename T>
void Append(std::vector<uint8_t>* to, const T* from, size_t count) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(from);
  to->insert(to->end(), bytes, bytes + count * sizeof(T));
}

// Takes `count` structs from the front; the caller has checked that they are there.
template <typename T>
std::vector<T> Take(std::span<const uint8_t>* from, size_t count) {
  std::vector<T> out(count);
  if (count > 0) std::memcpy(out.data(), from->data(), count * sizeof(T));
  *from = from->subspan(count * sizeof(T));
  return out;
}

Status CheckForward(const ForwardOp& op) {
  if (op.kind < kKindWrite || op.kind > kKindReplace) return Refuse("forward: unknown kind");
  if ((op.flags & ~kForwardFlagsKnown) != 0) return Refuse("forward: unknown flags");
  const bool has_data = op.kind == kKindWrite || op.kind == kKindReplace;
  if (has_data && (!std::has_single_bit(op.chunk_size) || op.chunk_size < kChunkBytesMin ||
                   op.chunk_size > kChunkBytesMax)) {
    return Refuse("forward: chunk size is not a power of two from 64 KiB to 64 MiB");
  }
  if (op.data_length != (has_data ? op.length : 0)) return Refuse("forward: wrong data length");
  if (op.length > kChunkBytesMax || op.offset > kChunkBytesMax - op.length ||
      (has_data && op.offset + op.length > op.chunk_size)) {
    return Refuse("forward: beyond the chunk");
  }
  if (op.record_count > kWireRecordsMax || (op.record_count > 0 && op.kind != kKindReplace) ||
      op.expired_count > kWireExpiredClientsMax) {
    return Refuse("forward: too many records");
  }
  return {};
}

}  // namespace

std::vector<uint8_t> EncodeForward(ChainHeader header, std::span<const ForwardItem> items) {
  header.count = static_cast<uint32_t>(items.size());
  header.op_size = sizeof(ForwardOp);
  std::vector<uint8_t> body;
  body.reserve(sizeof(header) + items.size() * sizeof(ForwardOp));
  Append(&body, &header, 1);
  for (const ForwardItem& item : items) {
    ForwardOp op = item.op;
    op.record_count = static_cast<uint16_t>(item.records.size());
    op.expired_count = static_cast<uint32_t>(item.expired_clients.size());
    Append(&body, &op, 1);
  }
  for (const ForwardItem& item : items) {
    Append(&body, item.records.data(), item.records.size());
    Append(&body, item.expired_clients.data(), item.expired_clients.size());
  }
  return body;
}

Result<ChainHeader> DecodeChainHeader(std::span<const uint8_t> body) {
  if (body.size() < sizeof(ChainHeader)) return Refuse("chain message: body too short");
  const auto header = LoadLittleEndian<ChainHeader>(body.data());
  if (header.reserved != 0) return Refuse("chain message: reserved field is not 0");
  return header;
}

Result<ForwardMessage> DecodeForward(std::span<const uint8_t> body, uint64_t bulk_length) {
  const auto header = DecodeChainHeader(body);
  if (!header.ok()) return header.status();
  ForwardMessage message{header.value(), {}};
  const uint32_t count = message.header.count;
  auto rest = body.subspan(sizeof(ChainHeader));
  if (message.header.op_size != sizeof(ForwardOp) || count > kOpsPerFrameMax ||
      rest.size() < count * sizeof(ForwardOp)) {
    return Refuse("forward: unexpected size");
  }
  const auto ops = Take<ForwardOp>(&rest, count);
  uint64_t data = 0;
  for (const ForwardOp& op : ops) {
    if (Status status = CheckForward(op); !status.ok()) return status;
    data += op.data_length;
    const size_t extra = op.record_count * sizeof(WireRecord) + op.expired_count * sizeof(uint64_t);
    if (rest.size() < extra) return Refuse("forward: records are missing");
    ForwardItem item{op, {}, {}};
    item.records = Take<WireRecord>(&rest, op.record_count);
    item.expired_clients = Take<uint64_t>(&rest, op.expired_count);
    message.items.push_back(std::move(item));
  }
  if (!rest.empty() || data != bulk_length) return Refuse("forward: lengths do not add up");
  return message;
}

}  // namespace fs3
