// The tcp transport: the kernel's TCP, driven through the loop's io_uring.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "fs3/native/net/transport.h"

namespace fs3 {
namespace {

constexpr int kAcceptBacklog = 1024;
// Between processes of one host there is no distance to bridge, and a long queue only pushes data
// out of the caches before it is read: 512 KiB give 1.5 times the throughput of an automatic
// buffer at two thirds of its CPU. Over a network the kernel's own tuning is right.
constexpr int kSameHostSendBufferBytes = 512 << 10;
constexpr std::chrono::milliseconds kAcceptRetryDelay{100};

// Closes the descriptor with the last owner.
class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }

  static Result<SocketAddress> Parse(const Endpoint& endpoint) {
    SocketAddress address;
    auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
    if (inet_pton(AF_INET, endpoint.host.c_str(), &v4->sin_addr) == 1) {
      v4->sin_family = AF_INET;
      v4->sin_port = htons(endpoint.port);
      address.length = sizeof(*v4);
    } else if (inet_pton(AF_INET6, endpoint.host.c_str(), &v6->sin6_addr) == 1) {
      v6->sin6_family = AF_INET6;
      v6->sin6_port = htons(endpoint.port);
      address.length = sizeof(*v6);
    } else {
      return Status(Code::kInvalidArgument, "not a numeric address: " + endpoint.host);
    }
    return address;
  }

  Endpoint ToEndpoint() const {
    char text[INET6_ADDRSTRLEN] = "?";
    if (storage.ss_family == AF_INET) {
      const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage);
      inet_ntop(AF_INET, &v4->sin_addr, text, sizeof(text));
      return {text, ntohs(v4->sin_port)};
    }
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage);
    inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text));
    return {text, ntohs(v6->sin6_port)};
  }
};

Status Failure(const std::string& what, int error) {
  return {Code::kUnavailable, what + ": " + std::strerror(error)};
}

void EnableOption(int fd, int level, int option) {
  const int on = 1;
  setsockopt(fd, level, option, &on, sizeof(on));
}

// Whether both ends of a connection have the same address.
bool IsSameHost(int fd) {
  SocketAddress own;
  SocketAddress peer;
  own.length = peer.length = sizeof(own.storage);
  return getsockname(fd, own.get(), &own.length) == 0 &&
         getpeername(fd, peer.get(), &peer.length) == 0 &&
         own.ToEndpoint().host == peer.ToEndpoint().host;
}

class TcpStream : public Stream {
 public:
  TcpStream(Loop& loop, Socket socket, std::string peer)
      : loop_(loop), socket_(std::move(socket)), peer_(std::move(peer)) {
    EnableOption(socket_.fd(), IPPROTO_TCP, TCP_NODELAY);
    if (IsSameHost(socket_.fd())) {
      setsockopt(socket_.fd(), SOL_SOCKET, SO_SNDBUF, &kSameHostSendBufferBytes,
                 sizeof(kSameHostSendBufferBytes));
    }
  }

  void Receive(const iovec* to, size_t count, Completion done) override {
    receive_.msg_iov = const_cast<iovec*>(to);
    receive_.msg_iovlen = count;
    loop_.ReceiveMessage(socket_.fd(), &receive_, 0, std::move(done));
  }

  // MSG_WAITALL makes the kernel go on with a send that found the socket buffer full, without a
  // trip through user space.
  void Send(const iovec* from, size_t count, Completion done) override {
    PrepareSend(from, count);
    loop_.SendMessage(socket_.fd(), &send_, MSG_NOSIGNAL | MSG_WAITALL, std::move(done));
  }

  void SendZeroCopy(const iovec* from, size_t count, Completion done, Task released) override {
    PrepareSend(from, count);
    ++zero_copy_outstanding_;
    loop_.SendMessageZeroCopy(socket_.fd(), &send_, MSG_NOSIGNAL | MSG_WAITALL, std::move(done),
                              [this, released = std::move(released)]() mutable {
                                --zero_copy_outstanding_;
                                released();
                              });
  }

  bool has_zero_copy() const override { return loop_.has_zero_copy_send(); }

  // What TCP still holds is delivered in order, unless the kernel reads it from the owner's memory:
  // a peer that is gone would keep that busy for minutes, so the connection is then dropped.
  void Shutdown() override {
    if (zero_copy_outstanding_ > 0) {
      sockaddr unspecified{};
      unspecified.sa_family = AF_UNSPEC;
      (void)connect(socket_.fd(), &unspecified, sizeof(unspecified));
    }
    shutdown(socket_.fd(), SHUT_RDWR);
  }

  std::string PeerText() const override { return peer_; }

 private:
  void PrepareSend(const iovec* from, size_t count) {
    send_.msg_iov = const_cast<iovec*>(from);
    send_.msg_iovlen = count;
  }

  Loop& loop_;
  const Socket socket_;
  const std::string peer_;
  msghdr receive_{};
  msghdr send_{};
  size_t zero_copy_outstanding_ = 0;
};

// Accepts one connection after the other. The state outlives the acceptor until the accept in
// flight has come back.
class TcpAcceptor : public Acceptor {
 public:
  TcpAcceptor(Loop& loop, Socket socket, AcceptFunction accept, uint16_t port)
      : state_(std::make_shared<State>(loop, std::move(socket), std::move(accept))), port_(port) {
    AcceptNext(state_);
  }

  ~TcpAcceptor() override {
    state_->closed = true;
    // A shut-down listener refuses at once and completes the accept.
    shutdown(state_->socket.fd(), SHUT_RDWR);
  }

  uint16_t port() const override { return port_; }

 private:
  struct State {
    State(Loop& loop, Socket socket, AcceptFunction accept)
        : loop(loop), socket(std::move(socket)), accept(std::move(accept)) {}
    Loop& loop;
    Socket socket;
    AcceptFunction accept;
    SocketAddress peer;
    bool closed = false;
  };

  static void AcceptNext(const std::shared_ptr<State>& state) {
    state->peer.length = sizeof(state->peer.storage);
    state->loop.Accept(state->socket.fd(), state->peer.get(), &state->peer.length,
                       [state](int32_t result) { OnAccepted(state, result); });
  }

  static void OnAccepted(const std::shared_ptr<State>& state, int32_t result) {
    if (result >= 0) {
      Socket socket(result);
      if (state->closed) return;
      state->accept(std::make_unique<TcpStream>(state->loop, std::move(socket),
                                                state->peer.ToEndpoint().Text()));
    }
    if (state->closed || result == -ECANCELED) return;
    const bool exhausted =
        result == -EMFILE || result == -ENFILE || result == -ENOBUFS || result == -ENOMEM;
    if (exhausted) {
      state->loop.StartTimer(kAcceptRetryDelay, [state] {
        if (!state->closed) AcceptNext(state);
      });
    } else {
      AcceptNext(state);
    }
  }

  std::shared_ptr<State> state_;
  const uint16_t port_;
};

// One attempt to connect, alive until the connect operation has come back.
struct ConnectAttempt {
  ConnectAttempt(Loop& loop, Socket socket, Endpoint to, ConnectFunction done)
      : loop(loop), socket(std::move(socket)), to(std::move(to)), done(std::move(done)) {}
  Loop& loop;
  Socket socket;
  const Endpoint to;
  ConnectFunction done;
  SocketAddress address;
  OperationId operation = 0;
  TimerId timer = 0;
  bool timed_out = false;

  void Finish(int32_t result) {
    loop.CancelTimer(timer);
    if (result == 0) {
      done(
          std::unique_ptr<Stream>(std::make_unique<TcpStream>(loop, std::move(socket), to.Text())));
    } else if (timed_out) {
      done(Status(Code::kTimedOut, "connect to " + to.Text() + " timed out"));
    } else {
      done(Failure("connect to " + to.Text(), -result));
    }
  }
};

class Tcp : public Transport {
 public:
  Result<std::unique_ptr<Acceptor>> Listen(Loop& loop, const Endpoint& at,
                                           AcceptFunction accept) override {
    auto address = SocketAddress::Parse(at);
    if (!address.ok()) return address.status();
    SocketAddress& bound = address.value();
    Socket socket(::socket(bound.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (socket.fd() < 0) return Failure("socket", errno);
    EnableOption(socket.fd(), SOL_SOCKET, SO_REUSEADDR);
    if (bind(socket.fd(), bound.get(), bound.length) != 0 ||
        listen(socket.fd(), kAcceptBacklog) != 0 ||
        getsockname(socket.fd(), bound.get(), &bound.length) != 0) {
      return Failure("listen on " + at.Text(), errno);
    }
    return std::unique_ptr<Acceptor>(std::make_unique<TcpAcceptor>(
        loop, std::move(socket), std::move(accept), bound.ToEndpoint().port));
  }

  void Connect(Loop& loop, const Endpoint& to, std::chrono::nanoseconds timeout,
               ConnectFunction done) override {
    auto address = SocketAddress::Parse(to);
    if (!address.ok()) return FailLater(loop, std::move(done), address.status());
    Socket socket(::socket(address.value().storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (socket.fd() < 0) return FailLater(loop, std::move(done), Failure("socket", errno));
    auto attempt = std::make_shared<ConnectAttempt>(loop, std::move(socket), to, std::move(done));
    attempt->address = address.value();
    attempt->operation =
        loop.Connect(attempt->socket.fd(), attempt->address.get(), attempt->address.length,
                     [attempt](int32_t result) { attempt->Finish(result); });
    attempt->timer = loop.StartTimer(timeout, [attempt] {
      attempt->timed_out = true;
      attempt->loop.Cancel(attempt->operation);
    });
  }

 private:
  static void FailLater(Loop& loop, ConnectFunction done, Status status) {
    loop.Defer([done = std::move(done), status = std::move(status)]() mutable { done(status); });
  }
};

}  // namespace

Transport& TcpTransport() {
  static Tcp tcp;
  return tcp;
}

}  // namespace fs3
