// Channel: the client's end of a service. One connection, opened when it is needed, opened again
// after it broke; a table of the requests that wait for their reply, each with a deadline.
//
// Thread and lifetime rules
//   * Everything on the thread of the loop. Held by shared_ptr.
//   * on_reply is called exactly once per Call, never from inside it, and after it the channel
//     touches neither the request's bulk nor the memory that place_bulk named.
//   * A deadline that passes while such memory is in use (the kernel is sending from it, or the
//     reply is arriving in it) is honoured as soon as that ends, at the latest when the connection
//     is closed for making no progress (Limits::stall_timeout). A reply that becomes complete
//     meanwhile is delivered.
//   * When the connection breaks, every request in flight fails with kUnavailable; whether the
//     server has executed it is unknown.
//   * While the connection cannot be made, requests fail at once, until the back-off is over.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "fs3/native/net/connection.h"

namespace fs3 {

struct Reply {
  // Of the transport (kUnavailable, kTimedOut, kBusy, kVersionMismatch) or of the server.
  Code code = Code::kOk;
  // True when the server answered; false when `body` is our own sentence about what went wrong.
  bool from_server = false;
  FrameHeader header;
  std::span<const uint8_t> body;  // valid during the call
  Buffer bulk;                    // when place_bulk did not name a place
};

struct Request {
  uint16_t method = 0;
  std::span<const uint8_t> body;  // copied by Call
  std::vector<iovec> bulk;        // must live until on_reply
  std::optional<uint32_t> bulk_crc32c;
  std::chrono::nanoseconds timeout{};
  // Where the reply's bulk goes, asked when its header and body are here. Default: a Buffer.
  Function<BulkTarget(const FrameHeader& header, std::span<const uint8_t> body)> place_bulk;
  Function<void(Reply&)> on_reply;
};

class Channel : public std::enable_shared_from_this<Channel>, private ConnectionHandler {
 public:
  struct Options {
    Connection::Limits limits;
    std::chrono::nanoseconds connect_timeout = std::chrono::seconds(2);
    std::chrono::nanoseconds backoff_first = std::chrono::milliseconds(10);
    std::chrono::nanoseconds backoff_max = std::chrono::seconds(1);
    size_t requests_max = 65536;                  // in flight; more fail with kBusy
    size_t queued_bytes_max = size_t{512} << 20;  // waiting to be sent; more fail with kBusy
  };

  static std::shared_ptr<Channel> Create(Loop& loop, Transport& transport, const Endpoint& to,
                                         const Identity& self, const Options& options);
  ~Channel() override = default;

  void Call(Request request);

  // Opens the connection now instead of at the first call; `done` tells how it went.
  void Open(Function<void(const Status&)> done);

  // Fails what is in flight with kUnavailable and takes no more. Must be called before the last
  // reference is dropped: an open channel keeps itself alive.
  void Close();

  bool is_ready() const { return state_ == State::kReady; }
  const Identity& peer() const { return peer_; }  // of the last successful handshake
  const Endpoint& endpoint() const { return to_; }
  size_t requests() const { return pending_.size(); }  // in flight
  size_t queued_bytes() const;                         // waiting to be sent

 private:
  enum class State : uint8_t { kIdle, kConnecting, kGreeting, kReady, kClosed };
  struct EarlyReply {
    Reply reply;
    std::vector<uint8_t> body;
  };
  struct Pending {
    Function<BulkTarget(const FrameHeader&, std::span<const uint8_t>)> place_bulk;
    Function<void(Reply&)> on_reply;
    TimerId deadline = 0;
    bool bulk_in_queue = false;  // the request's bulk may be read by the kernel
    bool receiving = false;      // the reply's bulk is arriving
    bool expired = false;
    std::unique_ptr<EarlyReply> early_reply;  // came while bulk_in_queue
  };
  struct Waiting {  // for the connection to be ready
    uint64_t id;
    uint16_t method;
    std::vector<uint8_t> body;
    std::vector<iovec> bulk;
    std::optional<uint32_t> bulk_crc32c;
  };

  Channel(Loop& loop, Transport& transport, const Endpoint& to, const Identity& self,
          const Options& options);

  // ConnectionHandler
  void OnReady(Connection& connection) override;
  BulkTarget OnBulk(Connection&, const FrameHeader& header, std::span<const uint8_t> body) override;
  void OnFrame(Connection& connection, Frame& frame) override;
  void OnClosed(Connection& connection, CloseReason reason, const Status& status) override;

  std::shared_ptr<ConnectionHandler> AsHandler();
  Status Admit() const;
  void Connect();
  void OnConnected(Result<std::unique_ptr<Stream>> stream);
  void ConnectFailed(const Status& status);
  void Send(uint64_t id, uint16_t method, std::span<const uint8_t> body, std::vector<iovec> bulk,
            std::optional<uint32_t> bulk_crc32c);
  void OnDeadline(uint64_t id);
  void OnBulkReleased(uint64_t id);
  void Finish(uint64_t id, Reply& reply);
  void FinishWith(uint64_t id, const Status& status);
  void FailAll(const Status& status);
  void FailLater(Function<void(Reply&)> on_reply, Status status);
  void TellOpened(const Status& status);

  Loop& loop_;
  Transport& transport_;
  const Endpoint to_;
  const Identity self_;
  const Options options_;

  State state_ = State::kIdle;
  std::shared_ptr<Connection> connection_;
  Identity peer_;
  bool was_ready_ = false;
  uint64_t next_id_ = 1;
  std::unordered_map<uint64_t, Pending> pending_;
  std::deque<Waiting> waiting_;
  std::vector<Function<void(const Status&)>> on_opened_;

  std::chrono::nanoseconds backoff_{0};
  BootClock::time_point retry_at_{};
  Status last_failure_;
};

}  // namespace fs3
