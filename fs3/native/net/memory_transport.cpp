#include "fs3/native/net/memory_transport.h"

#include <errno.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <vector>

namespace fs3 {
namespace {

constexpr uint16_t kFirstFreePort = 1024;

// One direction of a pair.
class Pipe : public std::enable_shared_from_this<Pipe> {
 public:
  explicit Pipe(Loop& loop) : loop_(loop) {}

  void Receive(const iovec* to, size_t count, Completion done) {
    receiver_ = {{to, to + count}, std::move(done)};
    Move();
  }

  void Send(const iovec* from, size_t count, Completion done) {
    sender_ = {{from, from + count}, std::move(done)};
    Move();
  }

  void Shutdown() {
    closed_ = true;
    Move();
  }

 private:
  struct Waiting {
    std::vector<iovec> pieces;
    Completion done;
  };

  // Moves what can be moved, and completes whoever got something.
  void Move() {
    if (sender_.done) {
      const size_t sent = closed_ ? 0 : Fill();
      if (sent > 0 || closed_) Complete(sender_, closed_ ? -EPIPE : static_cast<int32_t>(sent));
    }
    if (receiver_.done) {
      const size_t received = Drain();
      if (received > 0 || closed_) Complete(receiver_, static_cast<int32_t>(received));
    }
  }

  size_t Fill() {
    size_t total = 0;
    for (const iovec& piece : sender_.pieces) {
      const auto* from = static_cast<const uint8_t*>(piece.iov_base);
      const size_t size = std::min(piece.iov_len, MemoryTransport::kPipeBytes - bytes_.size());
      bytes_.insert(bytes_.end(), from, from + size);
      total += size;
    }
    return total;
  }

  size_t Drain() {
    size_t total = 0;
    for (const iovec& piece : receiver_.pieces) {
      const size_t size = std::min(piece.iov_len, bytes_.size());
      const auto end = bytes_.begin() + static_cast<ptrdiff_t>(size);
      std::copy(bytes_.begin(), end, static_cast<uint8_t*>(piece.iov_base));
      bytes_.erase(bytes_.begin(), end);
      total += size;
    }
    return total;
  }

  void Complete(Waiting& waiting, int32_t result) {
    loop_.Post([done = std::move(waiting.done), result]() mutable { done(result); });
    waiting = {};
    if (!closed_)
      loop_.Post([self = shared_from_this()] { self->Move(); });  // the other side may go on now
  }

  Loop& loop_;
  std::deque<uint8_t> bytes_;
  Waiting sender_;
  Waiting receiver_;
  bool closed_ = false;
};

class MemoryStream final : public Stream {
 public:
  MemoryStream(std::shared_ptr<Pipe> out, std::shared_ptr<Pipe> in)
      : out_(std::move(out)), in_(std::move(in)) {}
  ~MemoryStream() override { Shutdown(); }

  void Receive(const iovec* to, size_t count, Completion done) override {
    in_->Receive(to, count, std::move(done));
  }
  void Send(const iovec* from, size_t count, Completion done) override {
    out_->Send(from, count, std::move(done));
  }
  void SendZeroCopy(const iovec* from, size_t count, Completion done, Task released) override {
    Send(from, count, [done = std::move(done), released = std::move(released)](int32_t r) mutable {
      done(r);
      released();
    });
  }
  bool has_zero_copy() const override { return false; }
  void Shutdown() override {
    out_->Shutdown();
    in_->Shutdown();
  }
  std::string PeerText() const override { return "memory"; }

 private:
  const std::shared_ptr<Pipe> out_;
  const std::shared_ptr<Pipe> in_;
};

}  // namespace

// Frees its port when the acceptor is destroyed.
class MemoryTransport::PortHolder : public Acceptor {
 public:
  PortHolder(std::shared_ptr<Ports> ports, uint16_t port) : ports_(std::move(ports)), port_(port) {}
  ~PortHolder() override { ports_->erase(port_); }
  uint16_t port() const override { return port_; }

 private:
  const std::shared_ptr<Ports> ports_;
  const uint16_t port_;
};

std::pair<std::unique_ptr<Stream>, std::unique_ptr<Stream>> MemoryTransport::MakePair(Loop& loop) {
  auto forth = std::make_shared<Pipe>(loop);
  auto back = std::make_shared<Pipe>(loop);
  return {std::make_unique<MemoryStream>(forth, back), std::make_unique<MemoryStream>(back, forth)};
}

Result<std::unique_ptr<Acceptor>> MemoryTransport::Listen(Loop&, const Endpoint& at,
                                                          AcceptFunction accept) {
  uint16_t port = at.port;
  if (port == 0) port = ports_->empty() ? kFirstFreePort : ports_->rbegin()->first + 1;
  if (ports_->contains(port)) {
    return Status(Code::kUnavailable, "listen on " + at.Text() + ": " + std::strerror(EADDRINUSE));
  }
  ports_->emplace(port, std::make_shared<AcceptFunction>(std::move(accept)));
  return std::unique_ptr<Acceptor>(std::make_unique<PortHolder>(ports_, port));
}

void MemoryTransport::Connect(Loop& loop, const Endpoint& to, std::chrono::nanoseconds,
                              ConnectFunction done) {
  loop.Post([&loop, ports = ports_, to, done = std::move(done)]() mutable {
    const auto found = ports->find(to.port);
    if (found == ports->end()) {
      return done(Status(Code::kUnavailable,
                         "connect to " + to.Text() + ": " + std::strerror(ECONNREFUSED)));
    }
    auto [client, server] = MakePair(loop);
    (*found->second)(std::move(server));
    done(std::move(client));
  });
}

}  // namespace fs3
