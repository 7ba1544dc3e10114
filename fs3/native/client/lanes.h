// Channels for exactly-once writes (design section 7): each has one update under way at a time, and
// its sequence tells a retry from a new update.
//
// The chunk decides which few channels may be used for it, and the lowest free one is taken: so a
// chunk, which remembers the last result of each channel, remembers few.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <unordered_map>

#include "fs3/native/base/ids.h"

namespace fs3 {

struct IoPiece;

class Lanes {
 public:
  static constexpr uint32_t kBuckets = 1024;
  static constexpr uint32_t kLanesPerBucket = 16;

  // Gives the piece a channel and a sequence; false when all are taken, it is then told by Release.
  bool Take(IoPiece* piece);

  // The update is over, in whatever way. Returns who may go on with a channel now, if somebody
  // waits.
  IoPiece* Release(const IoPiece& piece);

 private:
  struct Bucket {
    std::array<uint64_t, kLanesPerBucket> sequences{};
    uint32_t taken = 0;  // bits
    std::deque<IoPiece*> waiting;
  };

  std::unordered_map<uint32_t, Bucket> buckets_;
};

}  // namespace fs3
