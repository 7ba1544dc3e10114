// SendQueue: frames on their way out. Pure: it does no IO; it gathers iovecs and is told how many
// bytes went.
//
// Headers and bodies are copied one after the other into pages, so that a burst of small frames
// leaves as one piece of memory; bulk is sent from where it is.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "fs3/native/frame/frame.h"
#include "fs3/native/loop/function.h"

namespace fs3 {

// The bulk of an outgoing frame.
struct OutBulk {
  std::vector<iovec> pieces;       // sent in this order
  std::optional<uint32_t> crc32c;  // computed by the connection when absent
  Function<void()> on_released;    // called once, when the memory is no longer read
};

class SendQueue {
 public:
  static constexpr size_t kPageBytes = size_t{16} << 10;
  static constexpr size_t kSparePagesMax = 4;

  // `header` as for EncodeFrameHeader; bulk_length and bulk_crc32c are filled in here.
  void Push(FrameHeader header, std::span<const uint8_t> body, OutBulk bulk);

  // The next bytes to send, at most `bytes_max` of them in at most `iovecs.size()` pieces.
  // Returns the number of pieces.
  size_t Gather(std::span<iovec> iovecs, size_t bytes_max);

  // `count` bytes of what Gather showed have left. Returns what they were sent from, to be given
  // to Release when the kernel no longer reads it.
  struct Sent;
  Sent Advance(size_t count);

  // Everything that is still queued; for a broken connection.
  Sent Clear();

  // Calls on_released of the frames and recycles the pages.
  void Release(Sent sent);

  size_t queued_bytes() const { return queued_bytes_; }
  bool empty() const { return queued_bytes_ == 0; }

 private:
  struct Page {
    std::unique_ptr<uint8_t[]> data;
    size_t capacity = 0;
    size_t used = 0;
    size_t sent = 0;
  };
  struct Piece {
    const uint8_t* data;
    size_t size;
    bool in_page;  // of pages_.front() once it is at the front
  };

  void Append(std::span<const uint8_t> bytes);
  void AppendBulk(OutBulk bulk);
  void FinishPiece(const Piece& piece, Sent& sent);
  Page TakePage(size_t size);

  std::deque<Piece> pieces_;
  std::deque<Page> pages_;
  std::deque<Function<void()>> releases_;
  std::vector<Page> spare_pages_;
  size_t front_sent_ = 0;  // bytes of pieces_.front() that have left
  size_t queued_bytes_ = 0;
};

struct SendQueue::Sent {
  std::vector<Function<void()>> releases;
  std::vector<Page> pages;
};

}  // namespace fs3
