// SmallWriteLog: where small overwrites go. Segments are filled from front to back, one at a time,
// and dropped when no record refers to them. Pure bookkeeping: the caller does the writing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "fs3/native/base/ids.h"

namespace fs3 {

class SmallWriteLog {
 public:
  struct Place {
    uint32_t segment = 0;
    uint32_t position = 0;  // bytes
  };

  SmallWriteLog(uint64_t segment_bytes, uint32_t segments_max)
      : segment_bytes_(segment_bytes), segments_max_(segments_max) {}

  // Room in the current segment, or nothing: then a segment must be added first.
  std::optional<Place> Append(const ChunkId& chunk, uint32_t length);

  bool full() const { return segments_.size() >= segments_max_; }
  uint32_t next_segment() const { return next_segment_; }
  void AddSegment();  // makes next_segment() the current one

  // References of records to log bytes.
  void Acquire(uint32_t segment, uint32_t length);
  void Release(uint32_t segment, uint32_t length);
  // Segments that no record refers to, the current one excepted; they are forgotten here.
  std::vector<uint32_t> TakeDead();

  // While opening.
  void Restore(uint32_t segment, uint64_t size);
  void RestoreUse(uint32_t segment, const ChunkId& chunk, uint32_t length);

  // The chunks to fold so that the oldest segment dies; empty while there is room enough.
  std::vector<ChunkId> ChunksToDrain() const;

  uint64_t segment_bytes() const { return segment_bytes_; }
  uint64_t bytes() const { return bytes_; }
  bool Contains(uint32_t segment) const { return segments_.contains(segment); }

 private:
  struct Segment {
    uint64_t size = 0;
    uint64_t used = 0;             // by records, in bytes; counted once per record
    std::vector<ChunkId> writers;  // chunks that may have pieces here
  };

  const uint64_t segment_bytes_;
  const uint32_t segments_max_;
  std::map<uint32_t, Segment> segments_;
  std::optional<uint32_t> current_;
  uint64_t tail_ = 0;  // of the current segment
  uint32_t next_segment_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace fs3
