// The replication machine for the simulator: the code that runs in production, driven from Python.
#include "fs3/native/replica/replica.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "fs3/native/bind/bind.h"
#include "fs3/native/bind/error.h"

namespace nb = nanobind;

namespace fs3::bind {
namespace {

using namespace replica;  // NOLINT: everything here is about it

using PyVersion = std::pair<uint64_t, uint64_t>;
using PyRecord = std::tuple<Incarnation, uint32_t, uint64_t, PyVersion, uint32_t>;
// version, length, live, truncate_version, records
using PyState = std::tuple<PyVersion, uint32_t, bool, uint64_t, std::vector<PyRecord>>;

struct PyPayload : Payload {
  explicit PyPayload(nb::object given) : object(std::move(given)) {}
  nb::object object;
};

Version ToVersion(const PyVersion& version) { return {version.first, version.second}; }

nb::object FromVersion(Version version) {
  return nb::make_tuple(version.chain_version, version.sequence);
}

ChunkId ToChunk(const nb::bytes& bytes) {
  if (bytes.size() != ChunkId::kSize) throw nb::value_error("a chunk id has 16 bytes");
  return ChunkId::Decode(reinterpret_cast<const uint8_t*>(bytes.c_str()));
}

nb::bytes FromChunk(const ChunkId& chunk) {
  const auto bytes = chunk.Encode();
  return nb::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::optional<ChunkState> ToState(const std::optional<PyState>& state) {
  if (!state) return std::nullopt;
  const auto& [version, length, live, truncate_version, records] = *state;
  ChunkState out{ToVersion(version), length, live, 0, truncate_version, {}};
  for (const auto& [client, channel, sequence, made, after] : records) {
    out.records.push_back({client, channel, sequence, ToVersion(made), after});
  }
  return out;
}

uint32_t Number(Code code) { return static_cast<uint32_t>(code); }

// Each effect as a tuple that starts with its name.
struct ToTuple {
  nb::tuple operator()(const LoadChunk& e) const {
    return nb::make_tuple("load_chunk", FromChunk(e.chunk));
  }
  nb::tuple operator()(const ListChunks& e) const {
    const nb::object after = e.after ? nb::object(FromChunk(*e.after)) : nb::none();
    return nb::make_tuple("list_chunks", after, e.chain_version);
  }
  nb::tuple operator()(const Persist& e) const { return nb::make_tuple("persist", *e.update); }
  nb::tuple operator()(const Commit& e) const {
    return nb::make_tuple("commit", FromChunk(e.chunk), FromVersion(e.version));
  }
  nb::tuple operator()(const Discard& e) const {
    return nb::make_tuple("discard", FromChunk(e.chunk), FromVersion(e.version));
  }
  nb::tuple operator()(const Forward& e) const {
    return nb::make_tuple("forward", *e.update, e.chain_version, e.upstream_persisted);
  }
  nb::tuple operator()(const ForwardChunk& e) const {
    return nb::make_tuple("forward_chunk", FromChunk(e.chunk), FromVersion(e.version),
                          e.chain_version);
  }
  nb::tuple operator()(const SendPersisted& e) const {
    return nb::make_tuple("send_persisted", FromChunk(e.chunk), FromVersion(e.version),
                          e.chain_version);
  }
  nb::tuple operator()(const Acknowledge& e) const {
    return nb::make_tuple("acknowledge", e.token, Number(e.code), e.full);
  }
  nb::tuple operator()(const Reply& e) const {
    return nb::make_tuple("reply", e.token, Number(e.code), FromVersion(e.version), e.length);
  }
  nb::tuple operator()(const AskTail& e) const {
    return nb::make_tuple("ask_tail", e.token, FromChunk(e.chunk), e.chain_version);
  }
  nb::tuple operator()(const ServeRead& e) const {
    const nb::object version = e.version ? FromVersion(*e.version) : nb::none();
    return nb::make_tuple("serve_read", e.token, version);
  }
  nb::tuple operator()(const RefuseRead& e) const {
    return nb::make_tuple("refuse_read", e.token, Number(e.code));
  }
  nb::tuple operator()(const RetryLater&) const { return nb::make_tuple("retry_later"); }
  nb::tuple operator()(const SendSyncDone& e) const {
    return nb::make_tuple("send_sync_done", e.chain_version);
  }
  nb::tuple operator()(const DropChunk& e) const {
    return nb::make_tuple("drop_chunk", FromChunk(e.chunk), e.chain_version);
  }
  nb::tuple operator()(const SyncFinished& e) const {
    return nb::make_tuple("sync_finished", e.token, e.chain_version);
  }
  nb::tuple operator()(const TargetFailed& e) const {
    return nb::make_tuple("target_failed", Number(e.code));
  }
};

// The machine with its invariants checked after each event.
class CheckedReplica {
 public:
  CheckedReplica(TargetId self, size_t updates_max, size_t copies_max,
                 const std::vector<std::pair<nb::bytes, PyVersion>>& recovered)
      : replica_(self, {updates_max, copies_max}, ToUncommitted(recovered)) {}

  template <typename Event>
  nb::list Handle(Event event) {
    Effects effects;
    event(replica_, &effects);
    replica_.CheckInvariants();
    nb::list out;
    for (const Effect& effect : effects) out.append(std::visit(ToTuple{}, effect));
    return out;
  }

  const Replica& replica() const { return replica_; }

 private:
  static std::vector<Uncommitted> ToUncommitted(
      const std::vector<std::pair<nb::bytes, PyVersion>>& recovered) {
    std::vector<Uncommitted> out;
    out.reserve(recovered.size());
    for (const auto& [chunk, version] : recovered) {
      out.push_back({ToChunk(chunk), ToVersion(version)});
    }
    return out;
  }

  Replica replica_;
};

void BindUpdate(nb::module_& m) {
  nb::class_<Update>(m, "ReplicaUpdate")
      .def(
          "__init__",
          [](Update* self, const nb::bytes& chunk, const PyVersion& version, int kind,
             Incarnation client, uint32_t channel, uint64_t sequence, uint64_t acknowledged_through,
             uint32_t offset, uint32_t length, uint32_t cut, uint64_t truncate_version,
             std::vector<Incarnation> expired_clients, nb::object payload) {
            new (self) Update{ToChunk(chunk),
                              ToVersion(version),
                              static_cast<UpdateKind>(kind),
                              {client, channel, sequence, acknowledged_through},
                              offset,
                              length,
                              cut,
                              0,
                              truncate_version,
                              std::move(expired_clients),
                              std::make_shared<PyPayload>(std::move(payload))};
          },
          nb::kw_only(), nb::arg("chunk"), nb::arg("version") = PyVersion(0, 0), nb::arg("kind"),
          nb::arg("client") = 0, nb::arg("channel") = 0, nb::arg("sequence") = 0,
          nb::arg("acknowledged_through") = 0, nb::arg("offset") = 0, nb::arg("length") = 0,
          nb::arg("cut") = kNoCut, nb::arg("truncate_version") = 0,
          nb::arg("expired_clients") = std::vector<Incarnation>(),
          nb::arg("payload").none() = nb::none())
      .def_prop_ro("chunk", [](const Update& u) { return FromChunk(u.chunk); })
      .def_prop_ro("version", [](const Update& u) { return FromVersion(u.version); })
      .def_prop_ro("kind", [](const Update& u) { return static_cast<int>(u.kind); })
      .def_prop_ro("client", [](const Update& u) { return u.tag.client; })
      .def_prop_ro("channel", [](const Update& u) { return u.tag.channel; })
      .def_prop_ro("sequence", [](const Update& u) { return u.tag.sequence; })
      .def_prop_ro("acknowledged_through",
                   [](const Update& u) { return u.tag.acknowledged_through; })
      .def_ro("offset", &Update::offset)
      .def_ro("length", &Update::length)
      .def_ro("cut", &Update::cut)
      .def_ro("truncate_version", &Update::truncate_version)
      .def_ro("expired_clients", &Update::expired_clients)
      .def_prop_ro("payload", [](const Update& u) -> nb::object {
        const auto* payload = dynamic_cast<const PyPayload*>(u.payload.get());
        return payload != nullptr ? payload->object : nb::none();
      });
}

}  // namespace

void BindReplica(nb::module_& m) {
  BindUpdate(m);
  nb::class_<CheckedReplica>(m, "Replica")
      .def(
          nb::init<TargetId, size_t, size_t, const std::vector<std::pair<nb::bytes, PyVersion>>&>(),
          nb::arg("target_id"), nb::kw_only(), nb::arg("updates_max") = Limits{}.updates_max,
          nb::arg("copies_max") = Limits{}.copies_max,
          nb::arg("recovered") = std::vector<std::pair<nb::bytes, PyVersion>>())
      .def(
          "on_chain",
          [](CheckedReplica& r, ChainVersion version,
             const std::vector<std::pair<TargetId, bool>>& members) {
            Chain chain{version, {}};
            for (const auto& [target, syncing] : members)
              chain.members.push_back({target, syncing});
            return r.Handle([&](Replica& m, Effects* e) { m.OnChain(chain, e); });
          },
          nb::arg("version"), nb::arg("members"))
      .def("on_client_update",
           [](CheckedReplica& r, Token token, ChainVersion chain_version, const Update& update) {
             return r.Handle([&](Replica& m, Effects* e) {
               m.OnClientUpdate(token, chain_version, update, e);
             });
           })
      .def("on_read",
           [](CheckedReplica& r, Token token, ChainVersion chain_version, const nb::bytes& chunk) {
             return r.Handle([&](Replica& m, Effects* e) {
               m.OnRead(token, chain_version, ToChunk(chunk), e);
             });
           })
      .def("on_forward",
           [](CheckedReplica& r, Token token, ChainVersion chain_version, const Update& update,
              bool upstream_persisted) {
             return r.Handle([&](Replica& m, Effects* e) {
               m.OnForward(token, chain_version, update, upstream_persisted, e);
             });
           })
      .def("on_upstream_persisted",
           [](CheckedReplica& r, ChainVersion chain_version, const nb::bytes& chunk,
              const PyVersion& version) {
             return r.Handle([&](Replica& m, Effects* e) {
               m.OnUpstreamPersisted(chain_version, ToChunk(chunk), ToVersion(version), e);
             });
           })
      .def(
          "on_sync_done",
          [](CheckedReplica& r, Token token, ChainVersion chain_version) {
            return r.Handle([&](Replica& m, Effects* e) { m.OnSyncDone(token, chain_version, e); });
          })
      .def("on_acknowledge",
           [](CheckedReplica& r, ChainVersion chain_version, const nb::bytes& chunk,
              const PyVersion& version, uint32_t code, bool full) {
             return r.Handle([&](Replica& m, Effects* e) {
               m.OnAcknowledge(chain_version, ToChunk(chunk), ToVersion(version),
                               static_cast<Code>(code), full, e);
             });
           })
      .def("on_sync_done_answer",
           [](CheckedReplica& r, ChainVersion chain_version, uint32_t code) {
             return r.Handle([&](Replica& m, Effects* e) {
               m.OnSyncDoneAnswer(chain_version, static_cast<Code>(code), e);
             });
           })
      .def("on_tail_answer",
           [](CheckedReplica& r, Token token, uint32_t code, const PyVersion& committed) {
             return r.Handle([&](Replica& m, Effects* e) {
               m.OnTailAnswer(token, static_cast<Code>(code), ToVersion(committed), e);
             });
           })
      .def(
          "on_loaded",
          [](CheckedReplica& r, const nb::bytes& chunk, uint32_t code,
             const std::optional<PyState>& state) {
            return r.Handle([&](Replica& m, Effects* e) {
              m.OnLoaded(ToChunk(chunk), static_cast<Code>(code), ToState(state), e);
            });
          },
          nb::arg("chunk"), nb::arg("code"), nb::arg("state").none())
      .def("on_listed",
           [](CheckedReplica& r, ChainVersion chain_version, uint32_t code,
              const std::vector<nb::bytes>& chunks, bool more) {
             std::vector<ChunkId> ids;
             ids.reserve(chunks.size());
             for (const auto& chunk : chunks) ids.push_back(ToChunk(chunk));
             return r.Handle([&](Replica& m, Effects* e) {
               m.OnListed(chain_version, static_cast<Code>(code), ids, more, e);
             });
           })
      .def("on_persisted",
           [](CheckedReplica& r, const nb::bytes& chunk, const PyVersion& version, uint32_t code,
              uint32_t length) {
             return r.Handle([&](Replica& m, Effects* e) {
               m.OnPersisted(ToChunk(chunk), ToVersion(version), static_cast<Code>(code), length,
                             e);
             });
           })
      .def("on_dropped",
           [](CheckedReplica& r, ChainVersion chain_version, uint32_t code) {
             return r.Handle([&](Replica& m, Effects* e) {
               m.OnDropped(chain_version, static_cast<Code>(code), e);
             });
           })
      .def("on_retry",
           [](CheckedReplica& r) { return r.Handle([](Replica& m, Effects* e) { m.OnRetry(e); }); })
      .def("on_space",
           [](CheckedReplica& r, bool full) {
             return r.Handle([&](Replica& m, Effects*) { m.OnSpace(full, true); });
           })
      .def("on_client_expired",
           [](CheckedReplica& r, Incarnation client) {
             return r.Handle([&](Replica& m, Effects*) { m.OnClientExpired(client); });
           })
      .def("is_tail", [](const CheckedReplica& r,
                         ChainVersion version) { return r.replica().IsTail(version); })
      .def("is_clean",
           [](const CheckedReplica& r, ChainVersion version, const nb::bytes& chunk) {
             return r.replica().IsClean(version, ToChunk(chunk));
           })
      .def_prop_ro("is_serving", [](const CheckedReplica& r) { return r.replica().is_serving(); })
      .def_prop_ro("is_head", [](const CheckedReplica& r) { return r.replica().is_head(); })
      .def_prop_ro("successor", [](const CheckedReplica& r) { return r.replica().successor(); })
      .def_prop_ro("tail", [](const CheckedReplica& r) { return r.replica().tail(); })
      .def_prop_ro("updates", [](const CheckedReplica& r) { return r.replica().updates(); });
}

}  // namespace fs3::bind
