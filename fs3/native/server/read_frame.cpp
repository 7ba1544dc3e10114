#include "fs3/native/server/read_frame.h"

#include <bit>
#include <utility>

#include "fs3/native/base/crc32c.h"
#include "fs3/native/chunk/granule_crc.h"

namespace fs3 {
namespace {

constexpr uint32_t kTableMin = 4U << 10;
constexpr uint32_t kTableMax = 256U << 10;

// CRC of what has `crc`, followed by `length` bytes that have `next`.
uint32_t Append(uint32_t crc, uint32_t next, uint32_t length) {
  const bool by_table = std::has_single_bit(length) && length >= kTableMin && length <= kTableMax;
  return by_table ? AppenderFor(length).Append(crc, next) : Crc32cCombine(crc, next, length);
}

// Adds memory to the list, or to its last piece when it follows that one.
void AddPiece(std::vector<iovec>* pieces, uint8_t* data, size_t size) {
  if (!pieces->empty()) {
    iovec& last = pieces->back();
    if (static_cast<uint8_t*>(last.iov_base) + last.iov_len == data) {
      last.iov_len += size;
      return;
    }
  }
  pieces->push_back({data, size});
}

}  // namespace

ReadFrame::ReadFrame(Connection& connection, const FrameHeader& request, std::vector<ReadOp> ops,
                     BudgetHold of_shard, BudgetHold of_connection)
    : connection_(connection.shared_from_this()),
      request_(request),
      ops_(std::move(ops)),
      of_shard_(std::move(of_shard)),
      of_connection_(std::move(of_connection)),
      replies_(ops_.size()),
      missing_(ops_.size()) {
  size_t total = 0;
  offsets_.reserve(ops_.size());
  for (const ReadOp& op : ops_) {
    offsets_.push_back(total);
    total += op.length;
  }
  buffer_ = Buffer::Allocate(total);
}

void ReadFrame::Set(size_t index, const ReadReply& reply) {
  replies_[index] = reply;
  if (--missing_ == 0) Send();
}

void ReadFrame::Send() {
  OutBulk bulk;
  uint32_t crc = 0;
  for (size_t i = 0; i < replies_.size(); ++i) {
    const ReadReply& reply = replies_[i];
    if (reply.length == 0) continue;
    AddPiece(&bulk.pieces, Place(i), reply.length);
    crc = i == 0 ? reply.crc32c : Append(crc, reply.crc32c, reply.length);
  }
  if (!bulk.pieces.empty()) {
    bulk.crc32c = crc;
    bulk.on_released = [self = shared_from_this()] {};
  }
  // A client that has gone needs no answer.
  (void)connection_->SendReply(request_, Code::kOk, EncodeOps(std::span<const ReadReply>(replies_)),
                               std::move(bulk));
}

}  // namespace fs3
