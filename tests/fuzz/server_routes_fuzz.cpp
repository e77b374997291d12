// A byte that chooses a route of `slime serve`, then the body that a client sends there: /tokenize, /detokenize, those that bring weights
// or look at them, profiles, control calls. An answer for the client: none is our own fault, none is missing.
//   build/fuzz/server_routes_fuzz -max_len=4096

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "core/error.h"
#include "engine/chat/chat_model.h"
#include "engine/http/api_state.h"
#include "engine/http/request_body.h"
#include "engine/http/torch_group_request.h"
#include "engine/scripted_engine.h"
#include "fuzz_folder.h"
#include "text/tokenizer/tokenizer.h"

namespace {

using namespace slime;
using namespace slime::engine;

/// Takes the answer of a handler that sends one.
class CaughtExchange final : public net::HttpExchange {
 public:
  explicit CaughtExchange(boost::asio::io_context& io) : io_(io) {}
  boost::asio::any_io_executor executor() const override { return io_.get_executor(); }
  Task<void> send(HttpResponse response) override {
    status = response.status;
    co_return;
  }
  Task<void> begin_events(net::HttpHeaders) override { std::abort(); }
  Task<void> write_event(std::string, std::string) override { std::abort(); }
  Task<void> write_comment(std::string) override { std::abort(); }
  Task<void> end_events() override { std::abort(); }
  Task<void> begin_body(HttpResponse, std::optional<std::uint64_t>) override { std::abort(); }
  Task<void> write_body(std::string) override { std::abort(); }
  Task<void> end_body() override { std::abort(); }
  void on_disconnect(std::function<void()>) override {}
  bool is_connected() const override { return true; }

  int status = 0;

 private:
  boost::asio::io_context& io_;
};

const text::Tokenizer& tiny_tokenizer() {
  static const auto tokenizer = text::Tokenizer::from_json(
      R"({"version":"1.0","added_tokens":[{"id":3,"content":"<s>","special":true,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false}],
          "normalizer":null,"pre_tokenizer":null,"post_processor":null,"decoder":null,
          "model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}})",
      "");
  return *tokenizer;
}

/// What the routes need, and their table. A folder of its own is all that they may read or write.
struct Served {
  Served() {
    add_text_routes(state, routes);
    add_weights_routes(state, routes);
    add_weight_tensor_routes(state, routes);
    add_profile_routes(state, routes);
    add_control_routes(state, routes);
    std::erase_if(routes, [](const net::HttpRoute& route) {
      return route.path == "/init_weights_update_group";  // goes to any address; its fields: below
    });
  }

  /// A trace that was begun ends, and its file goes.
  void end_profile() {
    std::promise<void> done;
    boost::asio::post(state.profile_thread, [&] {
      state.end_profile();
      done.set_value();
    });
    done.get_future().wait();
    for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
      std::filesystem::remove_all(entry.path());
  }

  FuzzFolder folder;
  ScriptedEngine engine{[](ScriptedRequest&, WeightVersion) {}};
  ServedModel model{
      .name = "tiny",
      .path = folder.path(),
      .dtype = "float32",
      .model_type = "llama",
      .architectures = {},
      .context_length = 64,
      .vocab_size = 4,
      .sampling_defaults = {},
      .tokenizer = &tiny_tokenizer(),
      .longest_token_bytes = 3,
      .chat = std::make_shared<const ChatModel>(
          [](const json::array& messages, const json::object&) {
            return json::serialize(messages);
          },
          "", &tiny_tokenizer(), ChatParsers{}),
      .weight_roots = {folder.path()},
  };
  ApiState state{engine, model, {.tp_size = 2, .profile_directory = folder.path()}};
  std::vector<net::HttpRoute> routes;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static auto& served = *new Served();  // its threads outlive the fuzzer's
  if (size == 0) return 0;
  const std::string body(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    (void)parse_torch_group(parse_body(body), served.state.options);
  } catch (const ConfigError&) {
  }
  const net::HttpRoute& route = served.routes[data[0] % served.routes.size()];
  boost::asio::io_context io;
  CaughtExchange exchange(io);
  exchange.request = {
      .method = route.method, .path = route.path, .query = "", .headers = {}, .body = body};
  if (data[0] >= 128) exchange.request.headers = {{"Content-Type", "application/octet-stream"}};
  try {
    std::exception_ptr thrown;
    boost::asio::co_spawn(io, route.handler(exchange),
                          [&](std::exception_ptr error) { thrown = std::move(error); });
    io.run();
    if (route.path == "/start_profile") served.end_profile();
    if (thrown) std::rethrow_exception(thrown);
  } catch (const ConfigError&) {
    return 0;  // 400
  }
  if (exchange.status < 200 || (exchange.status >= 500 && exchange.status != 501)) {
    std::fprintf(stderr, "%s answers %d\n", route.path.c_str(), exchange.status);
    std::abort();
  }
  return 0;
}
