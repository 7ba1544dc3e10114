#include "fs3/native/net/receiver.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "fs3/native/base/crc32c.h"

namespace fs3 {
namespace {

// Where bytes go that nobody wants, the same for every connection of a thread.
iovec DiscardPiece() {
  constexpr size_t kBytes = size_t{64} << 10;
  thread_local const std::unique_ptr<uint8_t[]> scratch(new uint8_t[kBytes]);
  return {scratch.get(), kBytes};
}

size_t TotalBytes(const std::vector<iovec>& pieces) {
  size_t total = 0;
  for (const iovec& piece : pieces) total += piece.iov_len;
  return total;
}

}  // namespace

Receiver::Receiver(FrameSink& sink) : sink_(sink), staging_(new uint8_t[kStagingBytes]) {}

bool Receiver::inside_frame() const { return state_ != State::kHeader || staged() > 0; }

std::span<const uint8_t> Receiver::body() const {
  if (!body_is_staged()) return large_body_;
  return {staging_.get() + begin_, header_.body_length};
}

std::span<const iovec> Receiver::Targets() {
  targets_.clear();
  direct_offered_ = 0;
  if (state_ == State::kBulk) {
    OfferBulk();
  } else if (state_ == State::kBody && !body_is_staged()) {
    direct_offered_ = std::min(large_body_.size() - large_body_received_, kReceiveBytesMax);
    targets_.push_back({large_body_.data() + large_body_received_, direct_offered_});
  } else if (state_ == State::kBody) {
    OfferStaging(header_.body_length - staged() + kBehindBulkBytes);
  } else {
    OfferStaging(last_had_bulk_ ? kBehindBulkBytes : kStagingBytes);
  }
  return targets_;
}

void Receiver::OfferBulk() {
  size_t piece = bulk_piece_;
  size_t filled = bulk_piece_filled_;
  while (direct_offered_ < bulk_remaining_ && targets_.size() < kReceivePiecesMax &&
         direct_offered_ < kReceiveBytesMax) {
    const bool discards = bulk_.pieces.empty();
    const iovec whole = discards ? DiscardPiece() : bulk_.pieces[piece++];
    const size_t size = std::min({whole.iov_len - filled, bulk_remaining_ - direct_offered_,
                                  kReceiveBytesMax - direct_offered_});
    if (size > 0) targets_.push_back({static_cast<uint8_t*>(whole.iov_base) + filled, size});
    direct_offered_ += size;
    filled = 0;
    if (discards) break;
  }
  if (direct_offered_ == bulk_remaining_) OfferStaging(kBehindBulkBytes);
}

void Receiver::OfferStaging(size_t size) {
  // What a partly staged frame still lacks must fit behind what is here.
  if (kStagingBytes - end_ < size && begin_ > 0) {
    std::memmove(staging_.get(), staging_.get() + begin_, staged());
    end_ -= std::exchange(begin_, 0);
  }
  targets_.push_back({staging_.get() + end_, std::min(size, kStagingBytes - end_)});
}

Malformed Receiver::Advance(size_t count) {
  const size_t direct = std::min(count, direct_offered_);
  if (direct > 0 && state_ == State::kBulk) ConsumeBulk(direct);
  if (direct > 0 && state_ == State::kBody) large_body_received_ += direct;
  end_ += count - direct;
  direct_offered_ = 0;
  return Process();
}

Malformed Receiver::Resume() {
  paused_ = false;
  return Process();
}

// Works off what is here. The sink may pause or resume from inside its callbacks.
Malformed Receiver::Process() {
  if (processing_) return Malformed::kNone;
  processing_ = true;
  Malformed malformed = Malformed::kNone;
  bool progress = true;
  while (progress && !paused_ && malformed == Malformed::kNone) {
    switch (state_) {
      case State::kHeader:
        progress = staged() >= kFrameHeaderSize;
        if (progress) malformed = StartBody();
        break;
      case State::kBody:
        progress = body_is_staged() ? staged() >= header_.body_length
                                    : large_body_received_ == header_.body_length;
        if (progress) malformed = FinishBody();
        break;
      case State::kBulk:
        progress = bulk_remaining_ == 0;
        if (progress) malformed = FinishBulk();
        break;
    }
  }
  processing_ = false;
  return malformed;
}

Malformed Receiver::StartBody() {
  std::memcpy(header_bytes_.data(), staging_.get() + begin_, kFrameHeaderSize);
  begin_ += kFrameHeaderSize;
  const DecodedHeader decoded = DecodeFrameHeader(header_bytes_);
  if (decoded.malformed != Malformed::kNone) return decoded.malformed;
  header_ = decoded.header;
  state_ = State::kBody;
  if (!body_is_staged()) TakeStagedBody();
  return Malformed::kNone;
}

void Receiver::TakeStagedBody() {
  large_body_.resize(header_.body_length);
  large_body_received_ = std::min<size_t>(staged(), header_.body_length);
  std::memcpy(large_body_.data(), staging_.get() + begin_, large_body_received_);
  begin_ += large_body_received_;
}

Malformed Receiver::FinishBody() {
  if (!BodyMatchesHeader(header_bytes_, body())) return Malformed::kBodyCrc;
  if (header_.bulk_length == 0) {
    Deliver();
  } else {
    StartBulk();
  }
  return Malformed::kNone;
}

void Receiver::StartBulk() {
  bulk_ = sink_.OnBulk(header_, body());
  if (bulk_.buffer) bulk_.pieces = {{bulk_.buffer.data(), bulk_.buffer.size()}};
  assert(bulk_.pieces.empty() || TotalBytes(bulk_.pieces) >= header_.bulk_length);
  bulk_piece_ = 0;
  bulk_piece_filled_ = 0;
  bulk_remaining_ = header_.bulk_length;
  bulk_crc_ = 0;
  state_ = State::kBulk;
  TakeStagedBulk();
}

// Moves the beginning of the bulk, which came in behind the body, to where it belongs.
void Receiver::TakeStagedBulk() {
  const size_t body_staged = body_is_staged() ? header_.body_length : 0;
  const uint8_t* from = staging_.get() + begin_ + body_staged;
  const size_t available = std::min(staged() - body_staged, bulk_remaining_);
  size_t left = available;
  for (size_t piece = 0; left > 0 && piece < bulk_.pieces.size(); ++piece) {
    const size_t size = std::min(left, bulk_.pieces[piece].iov_len);
    std::memcpy(bulk_.pieces[piece].iov_base, from + (available - left), size);
    left -= size;
  }
  ConsumeBulk(available);
  // The rest of what is staged closes up behind the body.
  const size_t behind = staged() - body_staged - available;
  std::memmove(staging_.get() + begin_ + body_staged, from + available, behind);
  end_ = begin_ + body_staged + behind;
}

// Accounts for `count` bytes of bulk that are in place, and checks them while they are in the
// cache.
void Receiver::ConsumeBulk(size_t count) {
  bulk_remaining_ -= count;
  while (count > 0 && !bulk_.pieces.empty()) {
    const iovec& piece = bulk_.pieces[bulk_piece_];
    const size_t size = std::min(count, piece.iov_len - bulk_piece_filled_);
    if (bulk_.verify) {
      bulk_crc_ =
          Crc32c(static_cast<uint8_t*>(piece.iov_base) + bulk_piece_filled_, size, bulk_crc_);
    }
    bulk_piece_filled_ += size;
    count -= size;
    if (bulk_piece_filled_ == piece.iov_len) {
      ++bulk_piece_;
      bulk_piece_filled_ = 0;
    }
  }
}

Malformed Receiver::FinishBulk() {
  const bool check = bulk_.verify && !bulk_.pieces.empty();
  if (check && bulk_crc_ != header_.bulk_crc32c) return Malformed::kBulkCrc;
  Deliver();
  return Malformed::kNone;
}

void Receiver::Deliver() {
  constexpr size_t kKeptBodyMax = size_t{1} << 20;
  Frame frame{header_, body(), std::move(bulk_.buffer)};
  bulk_ = {};
  sink_.OnFrame(frame);
  if (body_is_staged()) begin_ += header_.body_length;
  if (large_body_.capacity() > kKeptBodyMax) large_body_ = {};
  if (begin_ == end_) begin_ = end_ = 0;
  last_had_bulk_ = header_.bulk_length > 0;
  state_ = State::kHeader;
}

}  // namespace fs3
