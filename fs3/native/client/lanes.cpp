#include "fs3/native/client/lanes.h"

#include <bit>

#include "fs3/native/client/ticket.h"

namespace fs3 {

static_assert(Lanes::kLanesPerBucket <= 32);

bool Lanes::Take(IoPiece* piece) {
  const auto number = static_cast<uint32_t>(ChunkIdHash()(piece->chunk) % kBuckets);
  Bucket& bucket = buckets_[number];
  const auto lane = static_cast<uint32_t>(std::countr_one(bucket.taken));
  if (lane >= kLanesPerBucket) {
    bucket.waiting.push_back(piece);
    return false;
  }
  bucket.taken |= 1U << lane;
  piece->channel = number * kLanesPerBucket + lane;
  piece->sequence = ++bucket.sequences[lane];
  return true;
}

IoPiece* Lanes::Release(const IoPiece& piece) {
  Bucket& bucket = buckets_[piece.channel / kLanesPerBucket];
  bucket.taken &= ~(1U << piece.channel % kLanesPerBucket);
  if (bucket.waiting.empty()) return nullptr;
  IoPiece* next = bucket.waiting.front();
  bucket.waiting.pop_front();
  Take(next);
  return next;
}

}  // namespace fs3
