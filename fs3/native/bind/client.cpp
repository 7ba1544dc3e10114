// The IO client for Python: numpy arrays of requests in, arrays of results out, data straight from
// and into the caller's buffers, the interpreter lock released while it moves.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fs3/native/bind/bind.h"
#include "fs3/native/bind/buffer.h"
#include "fs3/native/bind/cluster_id.h"
#include "fs3/native/bind/error.h"
#include "fs3/native/client/io_client.h"

namespace nb = nanobind;

namespace fs3::bind {
namespace {

using std::chrono::nanoseconds;
using TicketPointer = std::shared_ptr<Ticket>;
using PyMember = std::tuple<TargetId, uint64_t, int, std::string, uint16_t>;
using PyChain = std::tuple<ChainId, ChainVersion, std::vector<PyMember>>;

constexpr int kServing = 1;
constexpr nanoseconds kSignalPeriod = std::chrono::milliseconds(100);
constexpr double kTimeoutMaxS = 1e9;

nanoseconds ToDuration(double seconds) {
  if (std::isnan(seconds)) throw nb::value_error("the timeout is not a number");
  return nanoseconds(static_cast<int64_t>(std::clamp(seconds, 0.0, kTimeoutMaxS) * 1e9));
}

template <typename T>
T Checked(Result<T> result) {
  if (result.ok()) return std::move(result.value());
  const std::string message = result.status().message();
  if (result.status().code() == Code::kNotFound) throw nb::key_error(message.c_str());
  throw nb::value_error(message.c_str());
}

std::vector<IoRequest> ToRequests(nb::handle array) {
  const BufferView view(array);
  if (view.size() % sizeof(IoRequest) != 0) {
    throw nb::value_error("requests must be an array of IO_REQUEST");
  }
  std::vector<IoRequest> requests(view.size() / sizeof(IoRequest));
  if (!requests.empty()) std::memcpy(requests.data(), view.data(), view.size());
  return requests;
}

nb::object Describe(std::initializer_list<std::pair<const char*, const char*>> fields) {
  nb::list list;
  for (const auto& [name, type] : fields) list.append(nb::make_tuple(name, type));
  return list;
}

nb::object RequestFields() {
  return Describe({{"handle", "<u4"},
                   {"reserved", "<u4"},
                   {"file_offset", "<u8"},
                   {"length", "<u8"},
                   {"buffer_offset", "<u8"}});
}

nb::object ResultFields() {
  return Describe({{"code", "<u4"}, {"reserved", "<u4"}, {"length", "<u8"}});
}

class PyIoClient {
 public:
  PyIoClient(std::unique_ptr<IoClient> client)
      : client_(std::move(client)),
        from_buffer_(nb::module_::import_("numpy").attr("frombuffer")),
        result_type_(nb::module_::import_("numpy").attr("dtype")(ResultFields())) {}

  ~PyIoClient() { Close(); }

  static std::unique_ptr<PyIoClient> Start(const nb::bytes& cluster_id, Incarnation incarnation,
                                           size_t inflight_bytes_max, double hedge_after_s) {
    EngineOptions options;
    options.self.cluster_id = ToClusterId(cluster_id);
    options.self.kind = PeerKind::kClient;
    options.self.incarnation = incarnation;
    options.inflight_bytes_max = inflight_bytes_max;
    options.hedge_after = ToDuration(hedge_after_s);
    return std::make_unique<PyIoClient>(ValueOrThrow(IoClient::Start(options)));
  }

  void SetRouting(const std::vector<PyChain>& chains) {
    std::vector<ChainRoute> routes;
    for (const auto& [chain, version, members] : chains) {
      ChainRoute& route = routes.emplace_back(ChainRoute{chain, version, {}});
      for (const auto& [target, generation, state, host, port] : members) {
        if (state == kServing) route.serving.push_back({target, {host, port}});
      }
    }
    nb::gil_scoped_release release;
    ThrowIfError(client_->SetRouting(std::move(routes)));
  }

  uint32_t OpenFile(InodeId inode, uint32_t chunk_size, std::vector<ChainId> chains,
                    uint64_t length, uint64_t truncate_version) {
    return Checked(
        client_->OpenFile(inode, chunk_size, std::move(chains), length, truncate_version));
  }

  File& Find(uint32_t handle) {
    const auto file = client_->Find(handle);
    if (file == nullptr) throw nb::key_error("unknown file handle");
    return *file;  // callers hold the interpreter lock, so nobody closes it meanwhile
  }

  nb::object Read(nb::handle requests, nb::handle into, double timeout_s) {
    return Finish(StartRead(requests, into, timeout_s, false));
  }
  nb::object Write(nb::handle requests, nb::handle source, double timeout_s) {
    return Finish(StartWrite(requests, source, timeout_s, false));
  }
  uint64_t SubmitRead(nb::handle requests, nb::handle into, double timeout_s) {
    return Keep(StartRead(requests, into, timeout_s, true));
  }
  uint64_t SubmitWrite(nb::handle requests, nb::handle source, double timeout_s) {
    return Keep(StartWrite(requests, source, timeout_s, true));
  }

  std::pair<uint32_t, uint64_t> Single(TicketPointer ticket) {
    const UnderWay under_way{std::move(ticket), nullptr};
    Wait(under_way);
    const IoResult& result = under_way.ticket->results().front();
    return {result.code, result.length};
  }
  uint64_t Queue(TicketPointer ticket) { return Keep({std::move(ticket), nullptr}); }

  nb::list Completed(double timeout_s) {
    std::vector<TicketPointer> tickets;
    {
      nb::gil_scoped_release release;
      tickets = client_->completions().Take(ToDuration(timeout_s));
    }
    nb::list out;
    for (const TicketPointer& ticket : tickets) {
      under_way_.erase(ticket->id());
      out.append(nb::make_tuple(ticket->id(), ToArray(*ticket)));
    }
    return out;
  }

  void Close() {
    {
      nb::gil_scoped_release release;
      client_->Close();
    }
    under_way_.clear();
    interrupted_.clear();
  }

  IoClient& client() { return *client_; }

 private:
  struct UnderWay {
    TicketPointer ticket;
    std::shared_ptr<BufferView> memory;
  };

  UnderWay StartRead(nb::handle array, nb::handle into, double timeout_s, bool in_queue) {
    const auto requests = ToRequests(array);
    auto memory = std::make_shared<BufferView>(into, PyBUF_WRITABLE);
    const std::span<uint8_t> bytes(static_cast<uint8_t*>(memory->mutable_data()), memory->size());
    return Begin(std::move(memory), [&] {
      return client_->SubmitRead(requests, bytes, ToDuration(timeout_s), in_queue);
    });
  }

  UnderWay StartWrite(nb::handle array, nb::handle source, double timeout_s, bool in_queue) {
    const auto requests = ToRequests(array);
    auto memory = std::make_shared<BufferView>(source);
    const std::span<const uint8_t> bytes(static_cast<const uint8_t*>(memory->data()),
                                         memory->size());
    return Begin(std::move(memory), [&] {
      return client_->SubmitWrite(requests, bytes, ToDuration(timeout_s), in_queue);
    });
  }

  template <typename Submit>
  UnderWay Begin(std::shared_ptr<BufferView> memory, Submit submit) {
    std::erase_if(interrupted_, [](const UnderWay& old) { return old.ticket->Wait({}); });
    Result<TicketPointer> ticket(Status(Code::kInternal, ""));
    {
      nb::gil_scoped_release release;
      ticket = submit();
    }
    return {Checked(std::move(ticket)), std::move(memory)};
  }

  nb::object Finish(const UnderWay& under_way) {
    Wait(under_way);
    return ToArray(*under_way.ticket);
  }

  uint64_t Keep(UnderWay under_way) {
    const uint64_t id = under_way.ticket->id();
    under_way_.emplace(id, std::move(under_way));
    return id;
  }

  // A signal's exception leaves the call, but the memory is kept until nothing uses it.
  void Wait(const UnderWay& under_way) {
    while (true) {
      bool done = false;
      {
        nb::gil_scoped_release release;
        done = under_way.ticket->Wait(kSignalPeriod);
      }
      if (done) return;
      if (PyErr_CheckSignals() == 0) continue;
      interrupted_.push_back(under_way);
      throw nb::python_error();
    }
  }

  nb::object ToArray(const Ticket& ticket) {
    const auto& results = ticket.results();
    const nb::bytes bytes(reinterpret_cast<const char*>(results.data()),
                          results.size() * sizeof(IoResult));
    return from_buffer_(bytes, result_type_);
  }

  std::unique_ptr<IoClient> client_;
  nb::object from_buffer_;
  nb::object result_type_;
  std::unordered_map<uint64_t, UnderWay> under_way_;
  std::vector<UnderWay> interrupted_;
};

void BindSingleResult(nb::class_<PyIoClient>& client) {
  using C = PyIoClient;
  const auto truncate = [](C& c, uint32_t handle, uint64_t length, uint64_t version, double timeout,
                           bool in_queue) {
    return Checked(
        c.client().SubmitTruncate(handle, length, version, ToDuration(timeout), in_queue));
  };
  const auto remove = [](C& c, uint32_t handle, uint64_t version, double timeout, bool in_queue) {
    return Checked(c.client().SubmitRemove(handle, version, ToDuration(timeout), in_queue));
  };
  const auto query_last = [](C& c, uint32_t handle, double timeout, bool in_queue) {
    return Checked(c.client().SubmitQueryLast(handle, ToDuration(timeout), in_queue));
  };
  const auto flush = [](C& c, uint32_t handle, double timeout, bool in_queue) {
    return Checked(c.client().SubmitFlush(handle, ToDuration(timeout), in_queue));
  };
  client
      .def(
          "truncate",
          [=](C& c, uint32_t handle, uint64_t length, uint64_t version, double timeout) {
            return c.Single(truncate(c, handle, length, version, timeout, false));
          },
          nb::arg("handle"), nb::arg("length"), nb::arg("truncate_version"), nb::arg("timeout_s"))
      .def(
          "submit_truncate",
          [=](C& c, uint32_t handle, uint64_t length, uint64_t version, double timeout) {
            return c.Queue(truncate(c, handle, length, version, timeout, true));
          },
          nb::arg("handle"), nb::arg("length"), nb::arg("truncate_version"), nb::arg("timeout_s"))
      .def(
          "remove",
          [=](C& c, uint32_t handle, uint64_t version, double timeout) {
            return c.Single(remove(c, handle, version, timeout, false));
          },
          nb::arg("handle"), nb::arg("truncate_version"), nb::arg("timeout_s"))
      .def(
          "submit_remove",
          [=](C& c, uint32_t handle, uint64_t version, double timeout) {
            return c.Queue(remove(c, handle, version, timeout, true));
          },
          nb::arg("handle"), nb::arg("truncate_version"), nb::arg("timeout_s"))
      .def(
          "query_last",
          [=](C& c, uint32_t handle, double timeout) {
            return c.Single(query_last(c, handle, timeout, false));
          },
          nb::arg("handle"), nb::arg("timeout_s"))
      .def(
          "submit_query_last",
          [=](C& c, uint32_t handle, double timeout) {
            return c.Queue(query_last(c, handle, timeout, true));
          },
          nb::arg("handle"), nb::arg("timeout_s"))
      .def(
          "flush",
          [=](C& c, uint32_t handle, double timeout) {
            return c.Single(flush(c, handle, timeout, false));
          },
          nb::arg("handle"), nb::arg("timeout_s"))
      .def(
          "submit_flush",
          [=](C& c, uint32_t handle, double timeout) {
            return c.Queue(flush(c, handle, timeout, true));
          },
          nb::arg("handle"), nb::arg("timeout_s"));
}

}  // namespace

void BindClient(nb::module_& m) {
  m.attr("IO_REQUEST") = RequestFields();
  m.attr("IO_RESULT") = ResultFields();
  using C = PyIoClient;
  nb::class_<C> client(m, "IoClient");
  client
      .def(nb::new_(&C::Start), nb::kw_only(), nb::arg("cluster_id"), nb::arg("incarnation"),
           nb::arg("inflight_bytes_max") = EngineOptions().inflight_bytes_max,
           nb::arg("hedge_after_s") = 0.1)
      .def("set_routing", &C::SetRouting, nb::arg("chains"))
      .def("open_file", &C::OpenFile, nb::arg("inode"), nb::arg("chunk_size"), nb::arg("chain_ids"),
           nb::arg("length"), nb::arg("truncate_version"))
      .def(
          "set_length",
          [](C& c, uint32_t handle, uint64_t length, uint64_t truncate_version) {
            c.Find(handle).SetLength(length, truncate_version);
          },
          nb::arg("handle"), nb::arg("length"), nb::arg("truncate_version"))
      .def(
          "length", [](C& c, uint32_t handle) { return c.Find(handle).extent().length; },
          nb::arg("handle"))
      .def(
          "acknowledged_length",
          [](C& c, uint32_t handle) { return c.Find(handle).acknowledged(); }, nb::arg("handle"))
      .def(
          "close_file", [](C& c, uint32_t handle) { c.client().CloseFile(handle); },
          nb::arg("handle"))
      .def("read", &C::Read, nb::arg("requests"), nb::arg("into"), nb::arg("timeout_s"))
      .def("write", &C::Write, nb::arg("requests"), nb::arg("source"), nb::arg("timeout_s"))
      .def("submit_read", &C::SubmitRead, nb::arg("requests"), nb::arg("into"),
           nb::arg("timeout_s"))
      .def("submit_write", &C::SubmitWrite, nb::arg("requests"), nb::arg("source"),
           nb::arg("timeout_s"))
      .def("completed", &C::Completed, nb::arg("timeout_s") = 0.0)
      .def("fileno", [](C& c) { return c.client().completions().fd(); })
      .def("counters",
           [](C& c) {
             nb::dict out;
             for (const auto& [name, value] : c.client().Counters()) out[name.c_str()] = value;
             return out;
           })
      .def("close", &C::Close);
  BindSingleResult(client);
}

}  // namespace fs3::bind
