// Listener: accepts connections for one service on one loop.
//
// Thread and lifetime rules
//   * Everything on the thread of the loop.
//   * `handler` serves all connections and is kept until the last of them is closed.
//   * Close() stops accepting and closes every connection; each still gets its OnClosed.
#pragma once

#include <cstdint>
#include <memory>

#include "fs3/native/net/connection.h"

namespace fs3 {

class Listener {
 public:
  struct Options {
    Connection::Limits limits;
    size_t connections_max = 4096;  // further ones are closed at once
  };

  // kUnavailable when the port is in use.
  static Result<std::unique_ptr<Listener>> Open(Loop& loop, Transport& transport,
                                                const Endpoint& at, const Identity& self,
                                                const Options& options,
                                                std::shared_ptr<ConnectionHandler> handler);
  ~Listener();  // as Close

  void Close();
  uint16_t port() const;
  size_t connections() const;

  // Null when it has closed.
  std::shared_ptr<Connection> Find(uint64_t connection_id) const;

 private:
  class Members;

  explicit Listener(std::shared_ptr<Members> members);

  std::shared_ptr<Members> members_;  // also the handler of the connections
  std::unique_ptr<Acceptor> acceptor_;
};

}  // namespace fs3
