// The storage server, controlled from Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "fs3/native/bind/bind.h"
#include "fs3/native/bind/cluster_id.h"
#include "fs3/native/bind/error.h"
#include "fs3/native/server/storage_server.h"

namespace nb = nanobind;

namespace fs3::bind {
namespace {

// target, generation, state, host, port; states as in fs3.model.routing.TargetState.
using PyMember = std::tuple<TargetId, uint64_t, int, std::string, uint16_t>;
constexpr int kServing = 1;
constexpr int kSyncing = 2;

std::unique_ptr<StorageServer> Start(const nb::bytes& cluster_id, NodeId node_id,
                                     Incarnation incarnation, const std::string& host,
                                     const std::vector<uint16_t>& ports,
                                     size_t inflight_bytes_max) {
  StorageServer::Options options;
  options.self.cluster_id = ToClusterId(cluster_id);
  options.self.kind = PeerKind::kStorage;
  options.self.node_id = node_id;
  options.self.incarnation = incarnation;
  options.host = host;
  options.ports = ports;
  options.inflight_bytes_max = inflight_bytes_max;
  nb::gil_scoped_release release;
  return ValueOrThrow(StorageServer::Start(options));
}

void AddTarget(StorageServer& server, TargetId target, uint64_t generation,
               const std::string& directory, bool create, size_t shard, uint64_t capacity_bytes) {
  TargetStoreOptions options;
  options.directory = directory;
  options.identity = {target, generation};
  options.create = create;
  options.capacity_bytes = capacity_bytes;
  ThrowIfError(server.AddTarget(options, shard));
}

void SetChain(StorageServer& server, TargetId target, ChainId chain, ChainVersion version,
              const std::vector<PyMember>& members) {
  ChainConfig config{chain, version, {}};
  for (const auto& [id, generation, state, host, port] : members) {
    if (state != kServing && state != kSyncing) continue;
    config.members.push_back({id, generation, state == kSyncing, {host, port}});
  }
  ThrowIfError(server.SetChain(target, std::move(config)));
}

const char* KindName(ServerEvent::Kind kind) {
  switch (kind) {
    case ServerEvent::Kind::kTargetError:
      return "target_error";
    case ServerEvent::Kind::kSyncProgress:
      return "sync_progress";
    case ServerEvent::Kind::kSyncFinished:
      return "sync_finished";
    case ServerEvent::Kind::kPeerRefused:
      return "peer_refused";
    case ServerEvent::Kind::kPeerReset:
      return "peer_reset";
    case ServerEvent::Kind::kForwardStalled:
      break;
  }
  return "forward_stalled";
}

std::chrono::nanoseconds Seconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds));
}

std::pair<std::string, uint16_t> ToPair(const Endpoint& endpoint) {
  return {endpoint.host, endpoint.port};
}

void BindTypes(nb::module_& m) {
  nb::class_<ServerEvent>(m, "ServerEvent")
      .def_prop_ro("kind", [](const ServerEvent& e) { return KindName(e.kind); })
      .def_ro("target_id", &ServerEvent::target)
      .def_ro("chain_id", &ServerEvent::chain)
      .def_ro("chain_version", &ServerEvent::chain_version)
      .def_ro("node_id", &ServerEvent::node)
      .def_prop_ro("code", [](const ServerEvent& e) { return static_cast<uint32_t>(e.code); })
      .def_ro("message", &ServerEvent::message)
      .def_ro("done", &ServerEvent::done)
      .def_ro("total", &ServerEvent::total)
      .def_ro("stalled_s", &ServerEvent::stalled_s);
  nb::class_<TargetSpace>(m, "TargetSpace")
      .def_ro("target_id", &TargetSpace::target)
      .def_prop_ro("capacity_bytes", [](const TargetSpace& s) { return s.space.capacity; })
      .def_prop_ro("used_bytes", [](const TargetSpace& s) { return s.space.used; })
      .def_prop_ro("free_bytes", [](const TargetSpace& s) { return s.space.free; })
      .def_ro("chunks", &TargetSpace::chunks);
}

}  // namespace

void BindServer(nb::module_& m) {
  BindTypes(m);
  using Release = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<StorageServer>(m, "StorageServer")
      .def(nb::new_(&Start), nb::kw_only(), nb::arg("cluster_id"), nb::arg("node_id"),
           nb::arg("incarnation"), nb::arg("host") = "127.0.0.1",
           nb::arg("ports") = std::vector<uint16_t>{0},
           nb::arg("inflight_bytes_max") = StorageServer::Options().inflight_bytes_max)
      .def("add_target", &AddTarget, nb::arg("target_id"), nb::arg("generation"),
           nb::arg("directory"), nb::kw_only(), nb::arg("create"), nb::arg("shard") = 0,
           nb::arg("capacity_bytes") = 0, Release())
      .def(
          "remove_target",
          [](StorageServer& s, TargetId target) { ThrowIfError(s.RemoveTarget(target)); },
          nb::arg("target_id"), Release())
      .def("set_chain", &SetChain, nb::arg("target_id"), nb::arg("chain_id"),
           nb::arg("chain_version"), nb::arg("members"), Release())
      .def("expire_clients", &StorageServer::ExpireClients, nb::arg("incarnations"), Release())
      .def(
          "poll_events",
          [](StorageServer& s, double timeout_s) { return s.PollEvents(Seconds(timeout_s)); },
          nb::arg("timeout_s"), Release())
      .def("fileno", &StorageServer::event_fd)
      .def("space", &StorageServer::GetSpace, Release())
      .def("counters",
           [](StorageServer& s) {
             std::vector<std::pair<std::string, uint64_t>> counters;
             {
               nb::gil_scoped_release release;
               counters = s.Counters();
             }
             nb::dict out;
             for (const auto& [name, value] : counters) out[name.c_str()] = value;
             return out;
           })
      .def("endpoints",
           [](const StorageServer& s) {
             std::vector<std::pair<std::string, uint16_t>> out;
             for (const Endpoint& endpoint : s.endpoints()) out.push_back(ToPair(endpoint));
             return out;
           })
      .def(
          "target_endpoint",
          [](const StorageServer& s, TargetId target) {
            const auto endpoint = s.EndpointOf(target);
            if (!endpoint.ok()) throw nb::key_error("no such target");
            return ToPair(endpoint.value());
          },
          nb::arg("target_id"))
      .def("stop", &StorageServer::Stop, Release());
}

}  // namespace fs3::bind
