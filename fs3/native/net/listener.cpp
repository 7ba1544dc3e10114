#include "fs3/native/net/listener.h"

#include <unordered_map>
#include <utility>
#include <vector>

#include "fs3/native/net/counters.h"

namespace fs3 {

// Keeps the connections that are open, and passes what happens on them to the service's handler.
class Listener::Members : public ConnectionHandler,
                          public std::enable_shared_from_this<Listener::Members> {
 public:
  Members(Loop& loop, const Identity& self, const Options& options,
          std::shared_ptr<ConnectionHandler> handler)
      : loop_(loop), self_(self), options_(options), handler_(std::move(handler)) {}

  void Accept(std::unique_ptr<Stream> stream) {
    if (closed_ || open_.size() >= options_.connections_max) return;
    ThreadCounters().connections_accepted.Add();
    auto connection = Connection::Start(loop_, std::move(stream), Connection::Role::kServer, self_,
                                        options_.limits, shared_from_this());
    open_.emplace(connection->id(), connection);
  }

  void CloseAll() {
    closed_ = true;
    std::vector<std::shared_ptr<Connection>> connections;
    for (const auto& [id, connection] : open_) connections.push_back(connection);
    for (const auto& connection : connections) connection->Close();
  }

  std::shared_ptr<Connection> Find(uint64_t id) const {
    const auto found = open_.find(id);
    return found == open_.end() ? nullptr : found->second;
  }

  size_t size() const { return open_.size(); }

  void OnReady(Connection& connection) override { handler_->OnReady(connection); }
  BulkTarget OnBulk(Connection& connection, const FrameHeader& header,
                    std::span<const uint8_t> body) override {
    return handler_->OnBulk(connection, header, body);
  }
  void OnFrame(Connection& connection, Frame& frame) override {
    handler_->OnFrame(connection, frame);
  }
  void OnDrained(Connection& connection) override { handler_->OnDrained(connection); }
  void OnClosed(Connection& connection, CloseReason reason, const Status& status) override {
    handler_->OnClosed(connection, reason, status);
    open_.erase(connection.id());
  }

 private:
  Loop& loop_;
  const Identity self_;
  const Options options_;
  const std::shared_ptr<ConnectionHandler> handler_;
  std::unordered_map<uint64_t, std::shared_ptr<Connection>> open_;
  bool closed_ = false;
};

Result<std::unique_ptr<Listener>> Listener::Open(Loop& loop, Transport& transport,
                                                 const Endpoint& at, const Identity& self,
                                                 const Options& options,
                                                 std::shared_ptr<ConnectionHandler> handler) {
  auto members = std::make_shared<Members>(loop, self, options, std::move(handler));
  auto acceptor = transport.Listen(
      loop, at, [members](std::unique_ptr<Stream> stream) { members->Accept(std::move(stream)); });
  if (!acceptor.ok()) return acceptor.status();
  auto listener = std::unique_ptr<Listener>(new Listener(std::move(members)));
  listener->acceptor_ = std::move(acceptor.value());
  return listener;
}

Listener::Listener(std::shared_ptr<Members> members) : members_(std::move(members)) {}

Listener::~Listener() { Close(); }

void Listener::Close() {
  acceptor_.reset();
  members_->CloseAll();
}

uint16_t Listener::port() const { return acceptor_->port(); }

size_t Listener::connections() const { return members_->size(); }

std::shared_ptr<Connection> Listener::Find(uint64_t connection_id) const {
  return members_->Find(connection_id);
}

}  // namespace fs3
