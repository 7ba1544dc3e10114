#include "fs3/native/net/send_queue.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fs3/native/base/crc32c.h"

namespace fs3 {

void SendQueue::Push(FrameHeader header, std::span<const uint8_t> body, OutBulk bulk) {
  size_t bulk_length = 0;
  for (const iovec& piece : bulk.pieces) bulk_length += piece.iov_len;
  if (bulk_length > 0 && !bulk.crc32c) {
    uint32_t crc = 0;
    for (const iovec& piece : bulk.pieces) crc = Crc32c(piece.iov_base, piece.iov_len, crc);
    bulk.crc32c = crc;
  }
  header.bulk_length = static_cast<uint32_t>(bulk_length);
  header.bulk_crc32c = bulk.crc32c.value_or(0);
  Append(EncodeFrameHeader(header, body));
  Append(body);
  AppendBulk(std::move(bulk));
}

void SendQueue::Append(std::span<const uint8_t> bytes) {
  if (bytes.empty()) return;
  queued_bytes_ += bytes.size();
  if (pages_.empty() || pages_.back().capacity - pages_.back().used < bytes.size()) {
    pages_.push_back(TakePage(bytes.size()));
  }
  Page& page = pages_.back();
  uint8_t* to = page.data.get() + page.used;
  std::memcpy(to, bytes.data(), bytes.size());
  page.used += bytes.size();
  const bool extends =
      !pieces_.empty() && pieces_.back().in_page && pieces_.back().data + pieces_.back().size == to;
  if (extends) {
    pieces_.back().size += bytes.size();
  } else {
    pieces_.push_back({to, bytes.size(), true});
  }
}

void SendQueue::AppendBulk(OutBulk bulk) {
  for (const iovec& piece : bulk.pieces) {
    if (piece.iov_len == 0) continue;
    queued_bytes_ += piece.iov_len;
    pieces_.push_back({static_cast<const uint8_t*>(piece.iov_base), piece.iov_len, false});
  }
  if (!bulk.on_released) return;
  // An empty piece carries the release: it is at the front once everything before it has left.
  pieces_.push_back({nullptr, 0, false});
  releases_.push_back(std::move(bulk.on_released));
}

size_t SendQueue::Gather(std::span<iovec> iovecs, size_t bytes_max) {
  size_t count = 0;
  size_t skip = front_sent_;
  for (auto piece = pieces_.begin();
       piece != pieces_.end() && count < iovecs.size() && bytes_max > 0; ++piece) {
    const size_t size = std::min(piece->size - skip, bytes_max);
    if (size == 0) continue;
    iovecs[count++] = {const_cast<uint8_t*>(piece->data + skip), size};
    bytes_max -= size;
    skip = 0;
  }
  return count;
}

SendQueue::Sent SendQueue::Advance(size_t count) {
  Sent sent;
  queued_bytes_ -= count;
  front_sent_ += count;
  while (!pieces_.empty() && front_sent_ >= pieces_.front().size) {
    front_sent_ -= pieces_.front().size;
    FinishPiece(pieces_.front(), sent);
    pieces_.pop_front();
  }
  return sent;
}

void SendQueue::FinishPiece(const Piece& piece, Sent& sent) {
  if (piece.size == 0) {
    sent.releases.push_back(std::move(releases_.front()));
    releases_.pop_front();
  }
  if (!piece.in_page) return;
  Page& page = pages_.front();
  page.sent += piece.size;
  if (page.sent < page.used) return;
  sent.pages.push_back(std::move(page));
  pages_.pop_front();
}

SendQueue::Sent SendQueue::Clear() {
  Sent sent;
  for (auto& release : releases_) sent.releases.push_back(std::move(release));
  releases_.clear();
  pieces_.clear();
  pages_.clear();
  front_sent_ = 0;
  queued_bytes_ = 0;
  return sent;
}

void SendQueue::Release(Sent sent) {
  for (Page& page : sent.pages) {
    if (page.capacity == kPageBytes && spare_pages_.size() < kSparePagesMax) {
      page.used = page.sent = 0;
      spare_pages_.push_back(std::move(page));
    }
  }
  for (auto& release : sent.releases) release();
}

SendQueue::Page SendQueue::TakePage(size_t size) {
  if (size <= kPageBytes && !spare_pages_.empty()) {
    Page page = std::move(spare_pages_.back());
    spare_pages_.pop_back();
    return page;
  }
  const size_t capacity = std::max(size, kPageBytes);
  return {std::unique_ptr<uint8_t[]>(new uint8_t[capacity]), capacity, 0, 0};
}

}  // namespace fs3
