#include "fs3/native/chunk/small_write_log.h"

#include <algorithm>
#include <cassert>

namespace fs3 {

std::optional<SmallWriteLog::Place> SmallWriteLog::Append(const ChunkId& chunk, uint32_t length) {
  if (!current_ || tail_ + length > segment_bytes_) return std::nullopt;
  const Place place{*current_, static_cast<uint32_t>(tail_)};
  tail_ += length;
  segments_.at(*current_).writers.push_back(chunk);
  return place;
}

void SmallWriteLog::AddSegment() {
  current_ = next_segment_++;
  tail_ = 0;
  segments_[*current_].size = segment_bytes_;
  bytes_ += segment_bytes_;
}

void SmallWriteLog::Acquire(uint32_t segment, uint32_t length) {
  segments_.at(segment).used += length;
}

void SmallWriteLog::Release(uint32_t segment, uint32_t length) {
  Segment& from = segments_.at(segment);
  assert(from.used >= length);
  from.used -= length;
}

std::vector<uint32_t> SmallWriteLog::TakeDead() {
  std::vector<uint32_t> out;
  for (auto it = segments_.begin(); it != segments_.end();) {
    if (it->second.used > 0 || it->first == current_) {
      ++it;
      continue;
    }
    out.push_back(it->first);
    bytes_ -= it->second.size;
    it = segments_.erase(it);
  }
  return out;
}

void SmallWriteLog::Restore(uint32_t segment, uint64_t size) {
  segments_[segment].size = size;
  bytes_ += size;
  next_segment_ = std::max(next_segment_, segment + 1);
}

void SmallWriteLog::RestoreUse(uint32_t segment, const ChunkId& chunk, uint32_t length) {
  Segment& at = segments_[segment];
  at.writers.push_back(chunk);
  at.used += length;
  next_segment_ = std::max(next_segment_, segment + 1);
}

std::vector<ChunkId> SmallWriteLog::ChunksToDrain() const {
  if (segments_.size() * 4 < size_t{segments_max_} * 3 || segments_.empty()) return {};
  const auto& [number, oldest] = *segments_.begin();
  if (number == current_) return {};
  std::vector<ChunkId> out = oldest.writers;
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace fs3
