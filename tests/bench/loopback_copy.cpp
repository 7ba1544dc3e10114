// The reference that network figures are compared with: bytes from one process to another over one
// TCP connection on loopback, and nothing else. 1 MiB messages, both sides touch every page of
// every message, as any real producer and consumer would.
//
//   loopback_copy [SECONDS]     prints {"mib_per_s": ..., "cpu_ms_per_mib": ..., "mib": ...}
//
// CPU is that of both processes, system time included. Stays within 15 % of `iperf3 -l 1M`.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMessageBytes = size_t{1} << 20;
constexpr size_t kPageBytes = 4096;
constexpr double kDefaultSeconds = 2;

[[noreturn]] void Fail(const char* what) {
  std::perror(what);
  std::exit(2);
}

class Message {
 public:
  Message() : bytes_(static_cast<uint8_t*>(std::aligned_alloc(kPageBytes, kMessageBytes))) {
    if (!bytes_) Fail("aligned_alloc");
    Fill(0);
  }
  uint8_t* data() { return bytes_.get(); }
  void Fill(uint8_t value) {
    for (size_t at = 0; at < kMessageBytes; at += kPageBytes) bytes_.get()[at] = value;
  }
  uint64_t Sum() const {
    uint64_t sum = 0;
    for (size_t at = 0; at < kMessageBytes; at += kPageBytes) sum += bytes_.get()[at];
    return sum;
  }

 private:
  struct Free {
    void operator()(uint8_t* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<uint8_t, Free> bytes_;
};

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = port;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Sends messages for `seconds`, then the end of the stream.
void Send(uint16_t port, double seconds) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = Loopback(port);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) Fail("connect");
  Message message;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  for (uint8_t round = 1; Clock::now() < end; ++round) {
    message.Fill(round);
    for (size_t sent = 0; sent < kMessageBytes;) {
      const ssize_t count = send(fd, message.data() + sent, kMessageBytes - sent, MSG_NOSIGNAL);
      if (count < 0) Fail("send");
      sent += static_cast<size_t>(count);
    }
  }
  close(fd);
}

// Receives until the end of the stream; the number of bytes.
uint64_t Receive(int fd) {
  Message message;
  uint64_t total = 0;
  volatile uint64_t sink = 0;
  size_t filled = 0;
  while (true) {
    const ssize_t count = recv(fd, message.data() + filled, kMessageBytes - filled, 0);
    if (count < 0) Fail("recv");
    if (count == 0) return total;
    total += static_cast<uint64_t>(count);
    filled += static_cast<size_t>(count);
    if (filled == kMessageBytes) {
      sink = sink + message.Sum();
      filled = 0;
    }
  }
}

double CpuSeconds(int who) {
  rusage usage{};
  getrusage(who, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : kDefaultSeconds;
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = Loopback(0);
  socklen_t length = sizeof(address);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(listener, 1) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    Fail("listen");
  }
  const pid_t child = fork();
  if (child < 0) Fail("fork");
  if (child == 0) {
    Send(address.sin_port, seconds);
    return 0;
  }
  const int fd = accept(listener, nullptr, nullptr);
  if (fd < 0) Fail("accept");
  const auto begin = Clock::now();
  const uint64_t bytes = Receive(fd);
  const double elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) return 2;
  const double cpu = CpuSeconds(RUSAGE_SELF) + CpuSeconds(RUSAGE_CHILDREN);
  const double mib = static_cast<double>(bytes) / static_cast<double>(kMessageBytes);
  std::printf("{\"mib_per_s\": %.1f, \"cpu_ms_per_mib\": %.4f, \"mib\": %.0f}\n", mib / elapsed,
              cpu * 1e3 / mib, mib);
  return 0;
}
