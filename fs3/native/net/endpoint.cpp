#include "fs3/native/net/endpoint.h"

#include <netdb.h>
#include <sys/socket.h>

#include <memory>

namespace fs3 {

std::string Endpoint::Text() const {
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<Endpoint> ResolveEndpoint(const Endpoint& endpoint) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(endpoint.host.c_str(), nullptr, &hints, &found);
  if (error != 0) {
    return Status(Code::kNotFound,
                  "cannot resolve host " + endpoint.host + ": " + gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, freeaddrinfo);
  char text[NI_MAXHOST];
  if (const int failure = getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof(text),
                                      nullptr, 0, NI_NUMERICHOST);
      failure != 0) {
    return Status(Code::kNotFound,
                  "cannot resolve host " + endpoint.host + ": " + gai_strerror(failure));
  }
  return Endpoint{text, endpoint.port};
}

}  // namespace fs3
