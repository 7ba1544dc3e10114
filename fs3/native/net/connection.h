// Connection: frames over a stream, the same for both ends.
//
// It greets the peer (HELLO), answers PING, checks every header, body and (unless told otherwise)
// bulk against its CRC, asks its owner where bulk data shall be received, so that it goes there
// without another copy, and sends many queued frames with one system call. A malformed frame, or a
// peer that makes no progress in the middle of one, closes this connection and nothing else.
//
// Thread and lifetime rules
//   * Everything on the thread of the loop. Other threads post to it.
//   * Held by shared_ptr; the connection keeps itself and its handler alive until OnClosed.
//   * OnClosed comes exactly once, never from inside a call of the owner. After it no memory of
//     the owner is read or written: every on_released has been called, every receive has ended.
//   * A handler may call any method of the connection from inside any of its callbacks.
#pragma once

#include <sys/uio.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fs3/native/base/status.h"
#include "fs3/native/frame/frame.h"
#include "fs3/native/frame/hello.h"
#include "fs3/native/frame/methods.h"
#include "fs3/native/loop/loop.h"
#include "fs3/native/net/buffer.h"
#include "fs3/native/net/receiver.h"
#include "fs3/native/net/send_queue.h"
#include "fs3/native/net/transport.h"

namespace fs3 {

class Connection;

// Why a connection ended.
enum class CloseReason : uint8_t {
  kLocal,      // this end called Close
  kPeer,       // the peer closed, in order or by reset
  kHandshake,  // the peers do not match; the status says why
  kMalformed,  // see malformed()
  kStalled,    // no byte moved for Limits::stall_timeout in the middle of a frame
  kOverflow,   // the peer does not take what it asked for: the send queue is full
};

// What the owner of a connection does with it. One handler may serve many connections.
class ConnectionHandler {
 public:
  virtual ~ConnectionHandler() = default;

  // The handshake is done; identity and features of the peer are known.
  virtual void OnReady(Connection&) {}

  // A frame with bulk: its body is here and verified, its bulk follows. Says where that goes;
  // by default into a fresh Buffer that OnFrame is given.
  virtual BulkTarget OnBulk(Connection&, const FrameHeader& header, std::span<const uint8_t> body) {
    (void)body;
    return BulkTarget::Into(Buffer::Allocate(header.bulk_length));
  }

  // A whole frame. `frame.body` is valid during the call; `frame.bulk` may be moved away.
  virtual void OnFrame(Connection& connection, Frame& frame) = 0;

  // The send queue has fallen below its low mark after it had been above the high one.
  virtual void OnDrained(Connection&) {}

  virtual void OnClosed(Connection& connection, CloseReason reason, const Status& status) = 0;
};

class Connection : public std::enable_shared_from_this<Connection>, private FrameSink {
 public:
  enum class Role : uint8_t { kClient, kServer };

  struct Limits {
    // Bytes queued to send. Above the high mark CanSend() is false and a server stops reading
    // requests; a server connection whose queue reaches the maximum is closed (kOverflow).
    size_t send_queue_high_bytes = size_t{16} << 20;
    size_t send_queue_low_bytes = size_t{4} << 20;
    size_t send_queue_max_bytes = size_t{512} << 20;
    // Without a byte moved for this long inside a frame, or before the handshake is done, the
    // connection is closed.
    std::chrono::nanoseconds stall_timeout = std::chrono::seconds(2);
    // Sends of at least this many bytes are handed over without a copy by the kernel; 0: never.
    // Pays on real network cards from about 64 KiB, not on loopback, where the kernel copies
    // anyway.
    size_t zero_copy_min_bytes = 0;
  };
  static constexpr size_t kSendPiecesMax = 128;
  // The most that one send may be for, so that progress is seen.
  static constexpr size_t kSendBytesMax = size_t{4} << 20;

  // Starts the handshake. `handler` is kept until after OnClosed.
  static std::shared_ptr<Connection> Start(Loop& loop, std::unique_ptr<Stream> stream, Role role,
                                           const Identity& self, const Limits& limits,
                                           std::shared_ptr<ConnectionHandler> handler);
  ~Connection() override = default;

  // Queues a frame; it leaves at the end of the loop's turn together with the others. The body is
  // copied, the bulk is sent from where it is: `bulk.on_released` tells when that memory is free
  // again, also when the connection breaks or this call fails.
  // kUnavailable when the connection is closing, kInvalidArgument when a length is out of bounds.
  Status SendRequest(uint16_t method, uint64_t request_id, std::span<const uint8_t> body,
                     OutBulk bulk = {});
  Status SendReply(const FrameHeader& request, Code status, std::span<const uint8_t> body,
                   OutBulk bulk = {});
  // A reply whose body is a sentence for a person.
  Status SendError(const FrameHeader& request, const Status& status);

  // Backpressure: false while the send queue is above its high mark. OnDrained follows.
  bool CanSend() const { return !above_high_mark_; }

  // Stops and resumes delivering frames. Frames that are already here are kept, bounded by the
  // receive buffer; the peer is slowed down by TCP.
  void PauseReceive();
  void ResumeReceive();

  void Close();

  bool is_ready() const { return state_ == State::kReady; }
  bool is_closing() const { return state_ == State::kClosing || state_ == State::kClosed; }
  uint64_t id() const { return id_; }  // unique in the process, never reused
  Role role() const { return role_; }
  const Identity& peer() const { return peer_; }   // of a ready connection
  uint64_t features() const { return features_; }  // understood by both ends
  Malformed malformed() const { return malformed_; }
  std::string PeerText() const { return stream_->PeerText(); }
  Loop& loop() { return loop_; }
  size_t queued_bytes() const { return send_queue_.queued_bytes(); }

  // Room for what the owner knows about this peer (a server's registered capabilities).
  std::shared_ptr<void> context;

 private:
  enum class State : uint8_t { kGreeting, kReady, kClosing, kClosed };
  struct ZeroCopySend {
    SendQueue::Sent sent;
    bool released = false;
  };

  Connection(Loop& loop, std::unique_ptr<Stream> stream, Role role, const Identity& self,
             const Limits& limits, std::shared_ptr<ConnectionHandler> handler);

  // FrameSink
  BulkTarget OnBulk(const FrameHeader& header, std::span<const uint8_t> body) override;
  void OnFrame(Frame& frame) override;

  // Handshake
  void Greet();
  void Answer(const FrameHeader& hello, Code status, const std::string& reason);
  void OnHello(const Frame& frame);
  void AcceptHello(const Frame& frame);
  void CheckHelloAnswer(const Frame& frame);
  void RefuseHello(const Status& status);
  void BecomeReady(const Identity& peer, uint8_t protocol_version);

  // Receiving
  bool wants_receive() const;
  void StartReceive();
  void OnReceived(int32_t result);
  void Continue(Malformed malformed);

  // Sending
  Status Enqueue(FrameHeader header, std::span<const uint8_t> body, OutBulk bulk);
  void ScheduleSend();
  void StartSend();
  void OnSent(int32_t result);
  void OnZeroCopySent(const std::shared_ptr<ZeroCopySend>& send, int32_t result);
  void ReleaseZeroCopy();
  bool AdvanceSend(int32_t result, SendQueue::Sent& sent);
  void ContinueSend();
  void UpdateMarks();

  // Progress and end
  bool is_inside_frame() const;
  void Watch();
  void CheckProgress();
  void FailMalformed(Malformed malformed);
  void Fail(CloseReason reason, Status status);
  void FinishCloseIfIdle();
  void FinishClose();

  Loop& loop_;
  const std::unique_ptr<Stream> stream_;
  const Role role_;
  const Identity self_;
  const Limits limits_;
  std::shared_ptr<ConnectionHandler> handler_;
  const uint64_t id_;

  State state_ = State::kGreeting;
  Identity peer_;
  uint64_t features_ = 0;
  uint8_t protocol_version_ = kProtocolMin;

  Receiver receiver_;
  bool receiving_ = false;
  bool paused_by_owner_ = false;
  bool paused_by_queue_ = false;

  SendQueue send_queue_;
  std::array<iovec, kSendPiecesMax> send_iovecs_{};
  bool sending_ = false;
  bool send_scheduled_ = false;
  bool above_high_mark_ = false;
  bool close_when_sent_ = false;
  bool finish_scheduled_ = false;
  std::deque<std::shared_ptr<ZeroCopySend>> zero_copy_sends_;  // oldest first

  TimerId watch_timer_ = 0;
  BootClock::time_point last_progress_;

  Malformed malformed_ = Malformed::kNone;
  CloseReason close_reason_ = CloseReason::kLocal;
  Status close_status_;
};

}  // namespace fs3
