// Receiver: turns a byte stream into frames. Pure: it does no IO; it says where the next bytes
// shall go, is told how many came, and hands frames to its sink. That makes it the thing to fuzz.
//
// Headers and small bodies are collected in a bounded staging buffer, many frames per receive. As
// soon as a frame's bulk is due, the bytes are received straight into the place that the sink
// named, with only a little room behind them for the next header.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fs3/native/frame/frame.h"
#include "fs3/native/net/buffer.h"

namespace fs3 {

// Where the bulk of a frame shall be received.
struct BulkTarget {
  // Memory of the owner that lives until OnFrame or OnClosed; together at least bulk_length bytes.
  std::vector<iovec> pieces;
  // Or a buffer, handed on with the frame.
  Buffer buffer;
  // False: the owner checks the bulk itself (it has per-granule CRCs to verify anyway).
  bool verify = true;

  static BulkTarget Into(Buffer buffer) { return {{}, std::move(buffer), true}; }
  static BulkTarget Into(std::vector<iovec> pieces) { return {std::move(pieces), {}, true}; }
  static BulkTarget Discard() { return {{}, {}, true}; }
};

struct Frame {
  FrameHeader header;
  std::span<const uint8_t> body;
  Buffer bulk;  // empty when the bulk was received elsewhere
};

class FrameSink {
 public:
  virtual ~FrameSink() = default;
  virtual BulkTarget OnBulk(const FrameHeader& header, std::span<const uint8_t> body) = 0;
  virtual void OnFrame(Frame& frame) = 0;
};

class Receiver {
 public:
  static constexpr size_t kStagingBytes = size_t{64} << 10;
  // Larger bodies are received into memory of their own.
  static constexpr size_t kStagedBodyMax = size_t{32} << 10;
  // Room for what follows a bulk; kept small, since bulk that lands there is copied once more.
  static constexpr size_t kBehindBulkBytes = size_t{4} << 10;
  // The most that one receive may be for, so that progress is seen.
  static constexpr size_t kReceiveBytesMax = size_t{4} << 20;
  static constexpr size_t kReceivePiecesMax = 64;

  explicit Receiver(FrameSink& sink);

  // Where the next bytes shall be received. Valid until the next Advance.
  std::span<const iovec> Targets();

  // `count` bytes were received into Targets(). Delivers every frame that is complete, unless
  // paused. After anything but kNone the stream is beyond repair.
  Malformed Advance(size_t count);

  void Pause() { paused_ = true; }
  // Continues with what is staged.
  Malformed Resume();
  bool is_paused() const { return paused_; }
  bool is_processing() const { return processing_; }  // inside a callback of the sink

  // Whether some but not all bytes of a frame are here.
  bool inside_frame() const;

 private:
  enum class State : uint8_t { kHeader, kBody, kBulk };

  size_t staged() const { return end_ - begin_; }
  bool body_is_staged() const { return header_.body_length <= kStagedBodyMax; }
  std::span<const uint8_t> body() const;

  Malformed Process();
  Malformed StartBody();
  Malformed FinishBody();
  void StartBulk();
  Malformed FinishBulk();
  void Deliver();
  void TakeStagedBody();
  void TakeStagedBulk();
  void ConsumeBulk(size_t count);
  void OfferBulk();
  void OfferStaging(size_t size);

  FrameSink& sink_;
  State state_ = State::kHeader;
  bool paused_ = false;
  bool processing_ = false;
  bool last_had_bulk_ = false;

  // Bytes [begin_, end_) of the staging buffer are received and not consumed. A small body stays
  // there, in front, until its frame is delivered.
  std::unique_ptr<uint8_t[]> staging_;
  size_t begin_ = 0;
  size_t end_ = 0;

  FrameHeaderBytes header_bytes_{};
  FrameHeader header_;
  std::vector<uint8_t> large_body_;
  size_t large_body_received_ = 0;

  BulkTarget bulk_;
  size_t bulk_piece_ = 0;         // the next piece to fill
  size_t bulk_piece_filled_ = 0;  // bytes already in it
  size_t bulk_remaining_ = 0;
  uint32_t bulk_crc_ = 0;

  std::vector<iovec> targets_;
  size_t direct_offered_ = 0;  // bytes of targets_ that are not staging
};

}  // namespace fs3
