#include "fs3/native/server/peers.h"

#include <utility>

namespace fs3 {
namespace {

Channel::Options PeerOptions() {
  Channel::Options options;
  options.connect_timeout = std::chrono::seconds(1);
  options.backoff_max = std::chrono::milliseconds(100);
  return options;
}

}  // namespace

void Peers::Call(const PeerAddress& to, Request request) {
  Peer& peer = peers_[to.endpoint.Text()];
  if (peer.channel == nullptr) {
    peer.channel = Channel::Create(loop_, TcpTransport(), to.endpoint, self_, PeerOptions());
    if (closed_) peer.channel->Close();
  }
  request.on_reply = [this, to, then = std::move(request.on_reply)](Reply& reply) mutable {
    Observe(to, reply);
    then(reply);
  };
  peer.channel->Call(std::move(request));
}

void Peers::Close() {
  closed_ = true;
  for (auto& [text, peer] : peers_) peer.channel->Close();
}

void Peers::Observe(const PeerAddress& to, const Reply& reply) {
  Peer& peer = peers_[to.endpoint.Text()];
  if (reply.from_server) {
    peer.answered = true;
    return;
  }
  if (reply.code != Code::kUnavailable || closed_) return;
  const std::string message(reinterpret_cast<const char*>(reply.body.data()), reply.body.size());
  if (std::exchange(peer.answered, false)) Tell(ServerEvent::Kind::kPeerReset, to, message);
  if (std::exchange(peer.probing, true)) return;
  peer.channel->Open([this, to](const Status& status) {
    peers_[to.endpoint.Text()].probing = false;
    if (!status.ok() && !closed_) {
      Tell(ServerEvent::Kind::kPeerRefused, to, status.message());
    }
  });
}

void Peers::Tell(ServerEvent::Kind kind, const PeerAddress& peer, const std::string& message) {
  ServerEvent event;
  event.kind = kind;
  event.node = peer.node;
  event.code = Code::kUnavailable;
  event.message = message;
  events_.Push(std::move(event));
}

}  // namespace fs3
