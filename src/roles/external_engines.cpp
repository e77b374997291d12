#include "roles/external_engines.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/error.h"

namespace slime::roles {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookAtServer{50};

sync::PublisherConfig through_folder(
    sync::PublisherConfig config,
    const std::function<void(const std::filesystem::path&)>& behind_writing) {
  config.sends_changes = false;
  config.on_written = [&behind_writing](const std::filesystem::path& folder) {
    if (behind_writing) behind_writing(folder);
  };
  return config;
}

/// The longest that a request may be; 0: the server does not tell.
int64_t longest_request(const json::object& info) {
  const auto number = [&](const char* name) -> int64_t {
    const json::value* value = info.if_contains(name);
    return value != nullptr && value->is_int64() ? value->get_int64() : 0;
  };
  if (const int64_t context = number("context_length"); context > 0) return context;
  const int64_t input = number("max_req_input_len");  // SGLang leaves room for a few tokens
  return input > 0 ? input + 1 : 0;
}

/// What of the server does not fit this run; empty: nothing.
std::string what_is_wrong(const json::object& info) {
  const json::value* mode = info.if_contains("disaggregation_mode");
  if (mode != nullptr && mode->is_string() && mode->get_string() != "null")
    return fmt::format("disaggregation_mode {}: servers that do prefill and decode are needed",
                       json_text(*mode));
  const json::value* encoder = info.if_contains("encoder_only");
  const auto is = [](const json::value* value, bool expected) {
    return value != nullptr && value->is_bool() && value->get_bool() == expected;
  };
  if (is(encoder, true)) return "encoder_only: it generates nothing";
  const json::value* generates = info.if_contains("is_generation");
  if (is(generates, false)) return "it generates nothing";
  return "";
}

}  // namespace

engine::HttpEngineConfig external_server(const std::string& address) {
  const auto refuse = [&]() -> ConfigError {
    return ConfigError(fmt::format(
        "--rollout-external-engine-addrs {}: should be HOST:PORT of a server", address));
  };
  std::string_view rest = address;
  if (rest.starts_with("http://")) rest.remove_prefix(7);
  if (rest.ends_with('/')) rest.remove_suffix(1);
  const std::size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos || colon == 0) throw refuse();
  std::string_view host = rest.substr(0, colon);
  const std::string_view port = rest.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  int number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc() || end != port.data() + port.size() || number < 1 || number > 65535)
    throw refuse();
  if (host.find_first_of("/@? ") != std::string_view::npos) throw refuse();
  return {.host = std::string(host), .port = static_cast<std::uint16_t>(number), .api_key = {}};
}

ExternalEngines::ExternalEngines(ExternalEnginesConfig config, model::Network& published,
                                 model::Network* trained, WeightVersion version, const Clock& clock)
    : config_(std::move(config)),
      clock_(clock),
      published_(published),
      trained_(trained),
      version_(version),
      publisher_(through_folder(config_.publishes, behind_writing_)),
      router_({}, clock) {
  check(!config_.publishes.folder.empty(), "external engines get weights through a folder");
  look_at_servers();
  begin();
  num_serving_ = config_.servers.size();
  for (std::size_t index = 0; index < config_.servers.size(); ++index)
    lives_.emplace_back([this, index](const std::stop_token& stop) { live(index, stop); });
}

ExternalEngines::~ExternalEngines() {
  for (std::jthread& life : lives_) life.request_stop();
  lives_.clear();
}

void ExternalEngines::look_at_servers() {
  std::vector<std::string> problems;
  for (const engine::HttpEngineConfig& server : config_.servers) {
    auto engine = std::make_unique<engine::HttpEngine>(server);
    const Expected<json::object> info = engine->ask_info();
    const std::string wrong = info ? what_is_wrong(*info) : info.error().message;
    if (!wrong.empty()) {
      problems.push_back(
          fmt::format("--rollout-external-engine-addrs {}: {}", engine->url(), wrong));
    } else if (const int64_t longest = longest_request(*info); longest > 0) {
      max_request_tokens_ =
          max_request_tokens_ == 0 ? longest : std::min(max_request_tokens_, longest);
    }
    first_.push_back(std::move(engine));
  }
  if (max_request_tokens_ == 0) max_request_tokens_ = published_.config().max_positions;
  if (!problems.empty()) throw ConfigError(problems);
}

void ExternalEngines::begin() {
  publisher_.begin();
  const sync::Publication publication = publisher_.prepare(published_, version_, Tensor());
  const engine::WeightUpdate update{
      .version = version_, .source = publication.source(), .publication = publication.number};
  std::vector<std::string> problems;
  for (const auto& engine : first_) {
    const Expected<void> updated = engine->update_weights(update);
    if (!updated) {
      problems.push_back(fmt::format("--rollout-external-engine-addrs: {}; it has to read {}",
                                     updated.error().message, publication.folder.string()));
      continue;
    }
    const Expected<router::EngineId> id = router_.join(*engine);
    if (id) {
      first_ids_.push_back(*id);
    } else {
      problems.push_back(id.error().message);
    }
  }
  publisher_.end(publication);
  if (problems.empty()) return;
  for (const router::EngineId id : first_ids_) router_.leave(id);
  throw ConfigError(problems);
}

void ExternalEngines::live(std::size_t index, const std::stop_token& stop) {
  std::unique_ptr<engine::HttpEngine> server = std::move(first_[index]);
  router::EngineId id = first_ids_[index];
  while (server != nullptr) {
    const std::string url = server->url();
    const std::string why = stay(index, std::move(server), id, stop);
    if (stop.stop_requested()) return;
    say(fmt::format("{} is lost, and what it was drawing goes on elsewhere: {}", url, why));
    {
      const std::lock_guard lock(mutex_);
      if (--num_serving_ == 0) last_served_ = clock_.now();
    }
    server = wait_for(index, id, stop);
    if (server != nullptr) say(url + " serves again");
  }
}

std::string ExternalEngines::stay(std::size_t /*index*/, std::unique_ptr<engine::HttpEngine> server,
                                  router::EngineId id, const std::stop_token& stop) {
  std::string why = "the run ends";
  while (pause(kLookAtServer, stop)) {
    if (const auto lost = server->why_lost()) {
      why = *lost;
      break;
    }
  }
  server->disconnect(why);
  router_.leave(id);
  return why;
}

std::unique_ptr<engine::HttpEngine> ExternalEngines::wait_for(std::size_t index,
                                                              router::EngineId& id,
                                                              const std::stop_token& stop) {
  while (pause(config_.check_interval, stop)) {
    {
      const std::lock_guard lock(mutex_);
      if (num_serving_ == 0 && clock_.now() - last_served_ > config_.patience) {
        router_.give_up(
            fmt::format("no server of --rollout-external-engine-addrs has answered for "
                        "{} s",
                        config_.patience.count() / 1000));
        return nullptr;
      }
    }
    auto server = std::make_unique<engine::HttpEngine>(config_.servers[index]);
    if (server->why_unhealthy()) continue;
    // It may have been started again, with the weights of its own beginning.
    const std::unique_lock lock(weights_mutex_);
    const sync::Publication publication = publisher_.prepare(published_, version_, Tensor());
    const Expected<void> updated = server->update_weights(
        {.version = version_, .source = publication.source(), .publication = publication.number});
    publisher_.end(publication);
    if (!updated) {
      say(updated.error().message);
      continue;
    }
    const Expected<router::EngineId> joined = router_.join(*server);
    if (!joined) continue;
    id = *joined;
    const std::lock_guard counts(mutex_);
    ++num_serving_;
    return server;
  }
  return nullptr;
}

void ExternalEngines::publish(const FetchWeights& fetch) {
  const at::NoGradGuard no_grad;
  if (trained_ != nullptr) {
    published_.weights().copy_from(trained_->weights());
    // sync: the folder is written by this thread
    const Tensor& trained_N = trained_->weights().flat();
    if (trained_N.is_cuda())
      c10::impl::VirtualGuardImpl(trained_N.device().type())
          .getStream(trained_N.device())
          .synchronize();
  } else {
    fetch(published_);
  }
  const auto start = clock_.now();
  const sync::Publication publication = publisher_.prepare(published_, version_, Tensor());
  engine::or_throw(router_.update_weights(
      {.version = version_, .source = publication.source(), .publication = publication.number}));
  publisher_.end(publication);
  traffic_ = {.bytes = publication.file_bytes, .density = 1};
  transfer_seconds_ = seconds_between(start, clock_.now());
}

void ExternalEngines::update_weights(WeightVersion version, const FetchWeights& fetch) {
  const std::unique_lock lock(weights_mutex_);
  version_ = version;
  publish(fetch);
}

void ExternalEngines::begin_epoch(int64_t /*epoch*/, WeightVersion version, model::Network* trained,
                                  const FetchWeights& fetch) {
  const std::unique_lock lock(weights_mutex_);
  trained_ = trained;
  version_ = version;
  publish(fetch);
}

double ExternalEngines::last_transfer_seconds() {
  const std::shared_lock lock(weights_mutex_);
  return transfer_seconds_;
}

std::optional<UpdateTraffic> ExternalEngines::last_traffic() {
  const std::shared_lock lock(weights_mutex_);
  return traffic_;
}

void ExternalEngines::call_behind_writing(std::function<void(const std::filesystem::path&)> call) {
  const std::unique_lock lock(weights_mutex_);
  behind_writing_ = std::move(call);
}

void ExternalEngines::tell_by(std::function<void(const std::string&)> tell) {
  const std::lock_guard lock(tell_mutex_);
  tell_ = std::move(tell);
  if (!tell_) return;
  for (const std::string& line : std::exchange(unsaid_, {})) tell_(line);
}

void ExternalEngines::say(const std::string& line) {
  const std::lock_guard lock(tell_mutex_);
  if (tell_) {
    tell_(line);
  } else {
    unsaid_.push_back(line);
  }
}

bool ExternalEngines::pause(milliseconds time, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, stop, time, [] { return false; });
  return !stop.stop_requested();
}

}  // namespace slime::roles
