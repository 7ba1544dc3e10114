// The other storage shards that this one talks to: a channel for each, and what is seen of them.
//
// A broken or refused connection is evidence that a node died; it is told at once, because the
// cluster manager acts on it (design section 6).
#pragma once

#include <map>
#include <memory>
#include <string>

#include "fs3/native/base/ids.h"
#include "fs3/native/net/channel.h"
#include "fs3/native/server/server_event.h"

namespace fs3 {

// A shard of another node, by its address.
struct PeerAddress {
  NodeId node = 0;
  Endpoint endpoint;
};

// All of it on the loop's thread.
class Peers {
 public:
  Peers(Loop& loop, const Identity& self, ServerEventQueue& events)
      : loop_(loop), self_(self), events_(events) {}

  // As Channel::Call.
  void Call(const PeerAddress& to, Request request);

  // Fails what is in flight.
  void Close();

 private:
  struct Peer {
    std::shared_ptr<Channel> channel;
    bool answered = false;  // since the connection was made
    bool probing = false;
  };

  void Observe(const PeerAddress& to, const Reply& reply);
  void Tell(ServerEvent::Kind kind, const PeerAddress& peer, const std::string& message);

  Loop& loop_;
  const Identity self_;
  ServerEventQueue& events_;
  std::map<std::string, Peer> peers_;
  bool closed_ = false;
};

}  // namespace fs3
