#include "comm/agent_store.h"

#include <fmt/format.h>

#include <exception>
#include <vector>

#include "comm/rank_group.h"

#define USE_C10D_GLOO  // the wheel is built with it
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace slime::comm {
namespace {

constexpr std::chrono::milliseconds kConnectTimeout{60'000};

template <typename Fn>
auto in_store(const std::string& address, int port, std::chrono::milliseconds timeout,
              const Fn& fn) {
  try {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(port);
    options.waitWorkers = false;
    options.timeout = timeout;
    const auto store = c10::make_intrusive<c10d::TCPStore>(address, options);
    return fn(*store);
  } catch (const std::exception& error) {
    const std::string what = error.what();
    throw GroupError(fmt::format("the launcher's store at {}:{}: {}", address, port,
                                 what.substr(0, what.find('\n'))));
  }
}

}  // namespace

void write_to_agent_store(const std::string& address, int port, const std::string& key,
                          const std::string& value) {
  in_store(address, port, kConnectTimeout, [&](c10d::TCPStore& store) {
    store.set(key, std::vector<uint8_t>(value.begin(), value.end()));
  });
}

std::string read_from_agent_store(const std::string& address, int port, const std::string& key,
                                  std::chrono::milliseconds timeout) {
  return in_store(address, port, timeout, [&](c10d::TCPStore& store) {
    const std::vector<uint8_t> value = store.get(key);
    return std::string(value.begin(), value.end());
  });
}

}  // namespace slime::comm
