#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <algorithm>
#include <cmath>

#include "fs3/native/bind/bind.h"
#include "fs3/native/bind/error.h"
#include "fs3/native/net/rpc_channel.h"
#include "fs3/native/net/rpc_server.h"

namespace nb = nanobind;

namespace fs3::bind {
namespace {

using std::chrono::nanoseconds;

// Waits are cut into slices, so that Ctrl-C reaches Python.
constexpr nanoseconds kSignalPeriod = std::chrono::milliseconds(100);
constexpr double kTimeoutMaxS = 1e9;

nanoseconds ToDuration(double seconds) {
  if (std::isnan(seconds)) throw nb::value_error("the timeout is not a number");
  return nanoseconds(static_cast<int64_t>(std::clamp(seconds, 0.0, kTimeoutMaxS) * 1e9));
}

ClusterId ToClusterId(const nb::bytes& bytes) {
  ClusterId id;
  if (bytes.size() != id.size()) throw nb::value_error("a cluster id has 16 bytes");
  std::copy_n(reinterpret_cast<const uint8_t*>(bytes.c_str()), id.size(), id.begin());
  return id;
}

nb::bytes ToBytes(std::string_view text) { return nb::bytes(text.data(), text.size()); }

// Calls `wait(slice)` without the interpreter lock until it returns true or `timeout` is over.
template <typename Wait>
bool WaitInSlices(nanoseconds timeout, Wait&& wait) {
  const auto deadline = BootClock::now() + timeout;
  while (true) {
    const nanoseconds left = std::max(deadline - BootClock::now(), nanoseconds(0));
    bool done;
    {
      nb::gil_scoped_release release;
      done = wait(std::min(left, kSignalPeriod));
    }
    if (done || left <= kSignalPeriod) return done;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

// Takes `...` of a tuple built by hand: nb::make_tuple costs twice as much for these hot ones.
nb::tuple PackTuple(std::initializer_list<nb::object> items) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(items.size()));
  Py_ssize_t index = 0;
  for (const nb::object& item : items) {
    PyTuple_SET_ITEM(tuple, index++, nb::object(item).release().ptr());
  }
  return nb::steal<nb::tuple>(tuple);
}

// ---- server

std::unique_ptr<RpcServer> StartServer(const std::string& host, uint16_t port,
                                       const nb::bytes& cluster_id, NodeId node_id,
                                       Incarnation incarnation, uint16_t kind,
                                       size_t queue_length_max) {
  const Identity self{ToClusterId(cluster_id), static_cast<PeerKind>(kind), node_id, incarnation,
                      0};
  RpcServer::Options options;
  options.queue_length_max = queue_length_max;
  nb::gil_scoped_release release;
  return ValueOrThrow(RpcServer::Start({host, port}, self, options));
}

nb::list Poll(RpcServer& server, size_t max_requests, double timeout_s) {
  std::vector<RpcRequest> requests;
  WaitInSlices(ToDuration(timeout_s), [&](nanoseconds slice) {
    requests = server.Poll(max_requests, slice);
    return !requests.empty() || server.is_closed();
  });
  nb::list out;
  for (const RpcRequest& request : requests) {
    out.append(PackTuple({nb::int_(request.connection_id), nb::int_(request.request_id),
                          nb::int_(request.method), ToBytes(request.body),
                          nb::int_(static_cast<uint16_t>(request.peer_kind)),
                          nb::int_(request.peer_incarnation)}));
  }
  return out;
}

void SendReplies(RpcServer& server, const nb::iterable& replies) {
  std::vector<RpcReply> batch;
  for (nb::handle item : replies) {
    const auto reply = nb::cast<nb::tuple>(item);
    if (reply.size() != 4) throw nb::value_error("a reply is (connection, request, status, body)");
    const auto body = nb::cast<nb::bytes>(reply[3]);
    batch.push_back({nb::cast<uint64_t>(reply[0]), nb::cast<uint64_t>(reply[1]),
                     nb::cast<uint32_t>(reply[2]), std::string(body.c_str(), body.size())});
  }
  nb::gil_scoped_release release;
  server.Reply(std::move(batch));
}

// ---- channel

std::unique_ptr<RpcChannel> ConnectChannel(const std::string& host, uint16_t port,
                                           const nb::bytes& cluster_id, Incarnation incarnation,
                                           double connect_timeout_s) {
  const Identity self{ToClusterId(cluster_id), PeerKind::kClient, 0, incarnation, 0};
  const nanoseconds timeout = ToDuration(connect_timeout_s);
  nb::gil_scoped_release release;
  return ValueOrThrow(RpcChannel::Connect({host, port}, self, timeout));
}

nb::object BodyOf(const RpcOutcome& outcome) {
  if (!outcome.is_text) return ToBytes(outcome.body);
  return nb::steal(PyUnicode_DecodeUTF8(outcome.body.data(),
                                        static_cast<Py_ssize_t>(outcome.body.size()), "replace"));
}

nb::tuple ToTuple(const RpcOutcome& outcome) {
  return PackTuple({nb::int_(outcome.status), BodyOf(outcome)});
}

std::string_view View(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

// Waits for the outcomes: each call ends by itself, at its deadline or when its connection breaks.
void WaitForBatch(RpcBatch& batch) {
  WaitInSlices(nanoseconds::max() / 4, [&](nanoseconds slice) { return batch.Wait(slice); });
}

nb::tuple Call(RpcChannel& channel, uint16_t method, const nb::bytes& body, double timeout_s) {
  const auto batch = channel.Start({{method, View(body)}}, ToDuration(timeout_s));
  WaitForBatch(*batch);
  return ToTuple(batch->outcomes().front());
}

nb::list CallMany(RpcChannel& channel, const nb::iterable& requests, double timeout_s) {
  std::vector<nb::bytes> owners;
  std::vector<RpcCall> calls;
  for (nb::handle item : requests) {
    const auto request = nb::cast<nb::tuple>(item);
    if (request.size() != 2) throw nb::value_error("a request is (method, body)");
    owners.push_back(nb::cast<nb::bytes>(request[1]));
    calls.push_back({nb::cast<uint16_t>(request[0]), View(owners.back())});
  }
  const auto batch = channel.Start(calls, ToDuration(timeout_s));
  WaitForBatch(*batch);
  nb::list out;
  for (const RpcOutcome& outcome : batch->outcomes()) out.append(ToTuple(outcome));
  return out;
}

uint64_t Submit(RpcChannel& channel, uint16_t method, const nb::bytes& body, double timeout_s) {
  return channel.Submit({method, View(body)}, ToDuration(timeout_s));
}

nb::list Completed(RpcChannel& channel) {
  nb::list out;
  for (const auto& [id, outcome] : channel.Completed()) {
    out.append(PackTuple({nb::int_(id), nb::int_(outcome.status), BodyOf(outcome)}));
  }
  return out;
}

nb::bytes PeerCluster(RpcChannel& channel) {
  const ClusterId id = channel.peer().cluster_id;
  return nb::bytes(reinterpret_cast<const char*>(id.data()), id.size());
}

}  // namespace

void BindRpc(nb::module_& m) {
  nb::class_<RpcServer>(m, "RpcServer")
      .def(nb::new_(&StartServer), nb::arg("host"), nb::arg("port"), nb::kw_only(),
           nb::arg("cluster_id"), nb::arg("node_id"), nb::arg("incarnation"), nb::arg("kind"),
           nb::arg("queue_length_max") = RpcServer::Options().queue_length_max)
      .def_prop_ro("port", &RpcServer::port)
      .def("poll", &Poll, nb::arg("max_requests"), nb::arg("timeout_s"))
      .def("reply", &SendReplies, nb::arg("replies"))
      .def("close", &RpcServer::Close, nb::call_guard<nb::gil_scoped_release>());

  nb::class_<RpcChannel>(m, "RpcChannel")
      .def(nb::new_(&ConnectChannel), nb::arg("host"), nb::arg("port"), nb::kw_only(),
           nb::arg("cluster_id"), nb::arg("incarnation"), nb::arg("connect_timeout_s"))
      .def("call", &Call, nb::arg("method"), nb::arg("body"), nb::arg("timeout_s"))
      .def("call_many", &CallMany, nb::arg("requests"), nb::arg("timeout_s"))
      .def("submit", &Submit, nb::arg("method"), nb::arg("body"), nb::arg("timeout_s"))
      .def("completed", &Completed)
      .def("fileno", &RpcChannel::completion_fd)
      .def_prop_ro("cluster_id", &PeerCluster)
      .def_prop_ro("server_incarnation",
                   [](RpcChannel& channel) { return channel.peer().incarnation; })
      .def_prop_ro("server_node_id", [](RpcChannel& channel) { return channel.peer().node_id; })
      .def("close", &RpcChannel::Close, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace fs3::bind
