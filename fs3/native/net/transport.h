// Transport: how byte streams between two processes come to be. `tcp` is the one everybody has;
// `memory` joins two ends inside a process, for tests. A connection sees only this interface.
//
// Thread rule: everything on the thread of the loop that the stream belongs to.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "fs3/native/base/status.h"
#include "fs3/native/loop/loop.h"
#include "fs3/native/net/endpoint.h"

namespace fs3 {

// One end of a connected byte stream.
//
// At most one Receive and one Send are outstanding. The iovec array and the memory behind it live
// until the completion, which is never called from inside the call. Destroy a stream only after
// the completions of everything outstanding.
class Stream {
 public:
  virtual ~Stream() = default;

  // Receives at least one byte; 0 means that the peer has closed.
  virtual void Receive(const iovec* to, size_t count, Completion done) = 0;

  // Sends some or all bytes, as many as it can without giving up on the peer.
  virtual void Send(const iovec* from, size_t count, Completion done) = 0;

  // As Send, but the kernel reads the memory in place: `released` comes once, after `done`, when
  // it no longer does. Several released may be outstanding. Only if has_zero_copy().
  virtual void SendZeroCopy(const iovec* from, size_t count, Completion done, Task released) = 0;
  virtual bool has_zero_copy() const = 0;

  // Ends both directions; what is outstanding completes soon, with an error or 0.
  virtual void Shutdown() = 0;

  virtual std::string PeerText() const = 0;
};

// Accepts streams until it is destroyed.
class Acceptor {
 public:
  virtual ~Acceptor() = default;
  virtual uint16_t port() const = 0;
};

using AcceptFunction = Function<void(std::unique_ptr<Stream>)>;
using ConnectFunction = Function<void(Result<std::unique_ptr<Stream>>)>;

class Transport {
 public:
  virtual ~Transport() = default;

  // Port 0 lets the system choose. kUnavailable when the port is in use.
  virtual Result<std::unique_ptr<Acceptor>> Listen(Loop& loop, const Endpoint& at,
                                                   AcceptFunction accept) = 0;

  // Calls `done` exactly once, never from inside this call. kUnavailable when refused or
  // unreachable, kTimedOut after `timeout`, kInvalidArgument for a host that is not numeric.
  virtual void Connect(Loop& loop, const Endpoint& to, std::chrono::nanoseconds timeout,
                       ConnectFunction done) = 0;
};

// The kernel's TCP through the loop's io_uring. Stateless, one for the whole process.
Transport& TcpTransport();

}  // namespace fs3
