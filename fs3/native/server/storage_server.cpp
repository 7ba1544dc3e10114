#include "fs3/native/server/storage_server.h"

#include <algorithm>
#include <future>

namespace fs3 {

Result<std::unique_ptr<StorageServer>> StorageServer::Start(const Options& options) {
  if (options.ports.empty()) return Status(Code::kInvalidArgument, "a server needs a shard");
  std::unique_ptr<StorageServer> server(new StorageServer(options));
  for (uint16_t port : options.ports) {
    if (Status status = server->StartShard(port); !status.ok()) return status;
  }
  return server;
}

StorageServer::~StorageServer() { Stop(); }

Status StorageServer::StartShard(uint16_t port) {
  const auto address = ResolveEndpoint({options_.host, port});
  if (!address.ok()) return address.status();
  Loop::Options loop_options;
  loop_options.name = "fs3-shard-" + std::to_string(shards_.size());
  auto thread = LoopThread::Start(loop_options);
  if (!thread.ok()) return thread.status();
  ShardThread at{std::move(thread.value()), nullptr, std::make_shared<ServerCounters>(),
                 address.value()};
  ShardOptions shard_options;
  shard_options.at = address.value();
  shard_options.self = options_.self;
  shard_options.inflight_bytes_max = options_.inflight_bytes_max;
  Status status;
  RunOn(at, [&] {
    auto shard = Shard::Start(at.thread->loop(), shard_options, events_, at.counters);
    status = shard.status();
    if (!shard.ok()) return;
    at.shard = std::move(shard.value());
    at.endpoint.port = at.shard->port();
  });
  if (status.ok()) shards_.push_back(std::move(at));
  return status;
}

template <typename Work>
bool StorageServer::RunOn(ShardThread& at, Work work) {
  std::promise<void> done;
  const bool posted = at.thread->loop().Post([&] {
    work();
    done.set_value();
  });
  if (posted) done.get_future().wait();
  return posted;
}

StorageServer::ShardThread* StorageServer::Owner(TargetId target) {
  const auto found = owners_.find(target);
  return found == owners_.end() ? nullptr : &shards_[found->second];
}

Status StorageServer::AddTarget(const TargetStoreOptions& options, size_t shard) {
  const std::lock_guard lock(control_);
  const TargetId id = options.identity.id;
  if (stopped_) return {Code::kUnavailable, "the storage server has stopped"};
  if (shard >= shards_.size()) return {Code::kInvalidArgument, "no such shard"};
  if (owners_.contains(id)) return {Code::kAlreadyExists, "the target is served here already"};
  ShardThread& at = shards_[shard];
  auto store = TargetStore::Open(at.thread->loop(), options);
  if (!store.ok()) return store.status();
  auto uncommitted = FindUncommitted(at, *store.value());
  RunOn(at, [&] {
    at.shard->Add(Target::Create(at.shard->context(), options.identity, std::move(store.value()),
                                 std::move(uncommitted)));
  });
  owners_[id] = shard;
  return Status::Ok();
}

// What an earlier process persisted and did not see committed.
std::vector<replica::Uncommitted> StorageServer::FindUncommitted(ShardThread& at,
                                                                 TargetStore& store) {
  std::vector<replica::Uncommitted> found;
  std::vector<ChunkId> pending;
  RunOn(at, [&] { pending = store.chunks().PendingChunks(); });
  for (const ChunkId& chunk : pending) {
    std::promise<void> looked_up;
    at.thread->loop().Post([&] {
      store.chunks().Stat(chunk, [&](Result<ChunkInfo> info) {
        if (info.ok() && !info.value().pending.empty()) {
          found.push_back({chunk, info.value().pending.back().version});
        }
        looked_up.set_value();
      });
    });
    looked_up.get_future().wait();
  }
  return found;
}

Status StorageServer::RemoveTarget(TargetId target) {
  const std::lock_guard lock(control_);
  ShardThread* owner = Owner(target);
  if (owner == nullptr || stopped_) return Status::Ok();
  CloseTarget(*owner, target);
  owners_.erase(target);
  return Status::Ok();
}

std::unique_ptr<TargetStore> StorageServer::CloseTarget(ShardThread& at, TargetId id) {
  std::promise<std::unique_ptr<TargetStore>> closed;
  RunOn(at, [&] {
    const auto target = at.shard->Take(id);
    if (target == nullptr) return closed.set_value(nullptr);
    target->Close([&](std::unique_ptr<TargetStore> store) { closed.set_value(std::move(store)); });
  });
  return closed.get_future().get();
}

Status StorageServer::SetChain(TargetId target, ChainConfig config) {
  const std::lock_guard lock(control_);
  ShardThread* owner = Owner(target);
  if (owner == nullptr || stopped_) return {Code::kNotFound, "no such target here"};
  for (ChainMember& member : config.members) {
    auto address = ResolveEndpoint(member.endpoint);
    if (!address.ok()) return address.status();
    member.endpoint = address.value();
  }
  Status status;
  RunOn(*owner, [&] {
    const TargetIdentity identity = owner->shard->Find(target)->identity();
    for (const ChainMember& member : config.members) {
      if (member.target != target || member.generation == identity.generation) continue;
      status = {Code::kConflict, "the chain names another generation of this target"};
      return;
    }
    owner->shard->SetChain(target, config);
  });
  return status;
}

void StorageServer::ExpireClients(const std::vector<Incarnation>& clients) {
  const std::lock_guard lock(control_);
  if (stopped_) return;
  for (ShardThread& at : shards_) {
    RunOn(at, [&] {
      for (const auto& target : at.shard->targets()) {
        for (Incarnation client : clients) target->ExpireClient(client);
      }
    });
  }
}

std::vector<TargetSpace> StorageServer::GetSpace() {
  const std::lock_guard lock(control_);
  std::vector<TargetSpace> all;
  if (stopped_) return all;
  for (ShardThread& at : shards_) {
    RunOn(at, [&] {
      for (const auto& target : at.shard->targets()) {
        all.push_back({target->identity().id, target->space(), target->store_counters().chunks});
      }
    });
  }
  return all;
}

std::vector<std::pair<std::string, uint64_t>> StorageServer::Counters() {
  const std::lock_guard lock(control_);
  std::map<std::string, uint64_t> sums;
  for (const ShardThread& at : shards_) {
    at.counters->ForEach(
        [&](const char* name, const Counter& counter) { sums[name] += counter.value(); });
  }
  return {sums.begin(), sums.end()};
}

std::vector<Endpoint> StorageServer::endpoints() const {
  std::vector<Endpoint> all;
  for (const ShardThread& at : shards_) all.push_back(at.endpoint);
  return all;
}

Result<Endpoint> StorageServer::EndpointOf(TargetId target) const {
  const std::lock_guard lock(control_);
  const auto found = owners_.find(target);
  if (found == owners_.end()) return Status(Code::kNotFound, "no such target here");
  return shards_[found->second].endpoint;
}

void StorageServer::Stop() {
  const std::lock_guard lock(control_);
  if (std::exchange(stopped_, true)) return;
  for (const auto& [target, shard] : owners_) CloseTarget(shards_[shard], target);
  owners_.clear();
  for (ShardThread& at : shards_) {
    RunOn(at, [&] {
      at.shard->Close();
      at.shard.reset();
    });
    at.thread->loop().Stop();
  }
}

}  // namespace fs3
