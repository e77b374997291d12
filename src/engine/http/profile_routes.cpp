/// /start_profile and /stop_profile: a trace of all threads, and of the GPU, for Perfetto.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "engine/http/api_state.h"
#include "engine/http/request_body.h"
#include "kernels/trace.h"

namespace slime::engine {
namespace {

// Those that are read come first; the others are SGLang's: a trace has all that there is.
constexpr auto kFields = std::to_array<std::string_view>(
    {"output_dir", "num_steps", "start_step", "activities",
     //
     "profile_by_stage", "with_stack", "record_shapes", "profile_prefix", "merge_profiles"});
constexpr std::chrono::milliseconds kPoll{5};

/// The trace that is under way. All on one thread, as traces have to be.
struct Profile {
  explicit Profile(boost::asio::thread_pool& thread) : timer(thread.get_executor()) {}
  std::optional<std::filesystem::path> file;
  std::optional<std::int64_t> ends_after;  // EngineLoad::steps_done
  boost::asio::steady_timer timer;
};

HttpResponse said(std::string text) {
  return {.body = std::move(text), .content_type = "text/plain"};
}

void end(Profile& profile) {
  const std::filesystem::path file = *std::exchange(profile.file, std::nullopt);
  profile.ends_after.reset();
  profile.timer.cancel();
  kernels::end_trace(file.string());
}

/// Where nobody waits for an answer.
void end_unasked(Profile& profile) {
  try {
    end(profile);
  } catch (const std::exception& error) {
    std::fputs(fmt::format("the profile is lost: {}\n", error.what()).c_str(), stderr);
  }
}

/// Ends the trace when the engine has made its steps.
void watch(ApiState& state, Profile& profile) {
  profile.timer.expires_after(kPoll);
  profile.timer.async_wait([&state, &profile](boost::system::error_code stopped) {
    if (stopped || !profile.ends_after) return;
    const Expected<EngineLoad> load = state.engine.load();
    if (load && load->steps_done < *profile.ends_after) return watch(state, profile);
    end_unasked(profile);
  });
}

/// Below the folder of --profile-dir, by default itself.
std::filesystem::path folder_of(const ApiState& state, const std::string& asked) {
  const std::filesystem::path& root = state.options.profile_directory;
  if (root.empty())
    throw ConfigError(
        "this server writes no profiles; `slime serve --profile-dir DIR` allows them");
  std::error_code error;
  const auto real_root = std::filesystem::canonical(root, error);
  if (error) throw ConfigError(fmt::format("{}: {}", root.string(), error.message()));
  if (asked.empty()) return real_root;
  const auto folder = std::filesystem::weakly_canonical(root / asked, error);
  const auto [rest, ignored] =
      std::mismatch(real_root.begin(), real_root.end(), folder.begin(), folder.end());
  if (error || rest != real_root.end())
    throw ConfigError("output_dir must lie below the folder of --profile-dir");
  std::filesystem::create_directories(folder, error);
  if (error) throw ConfigError(fmt::format("output_dir cannot be made: {}", error.message()));
  return folder;
}

HttpResponse start(ApiState& state, Profile& profile, const HttpRequest& request) {
  const json::object body = parse_optional_body(request.body);
  std::vector<std::string> problems;
  const FieldReader fields(body, "", problems);
  const std::string asked = fields.text("output_dir", 4096).value_or("");
  const auto num_steps = fields.integer("num_steps", 1, std::int64_t{1} << 40);
  fields.refuse("start_step", "is not supported: the trace begins now");
  const std::vector<std::string> activities = fields.strings("activities");
  bool with_gpu = activities.empty() && state.options.has_gpu;
  for (const std::string& activity : activities) {
    if (activity != "CPU" && activity != "GPU" && activity != "CUDA")
      fields.note("activities", "must be among \"CPU\" and \"GPU\"");
    with_gpu |= activity != "CPU" && state.options.has_gpu;
  }
  fields.refuse_unknown(kFields);
  require_none(problems);
  if (profile.file) throw ConfigError("a profile is under way; /stop_profile ends it");
  const std::filesystem::path folder = folder_of(state, asked);
  kernels::begin_trace(with_gpu);
  profile.file = folder / fmt::format("slime-{}.trace.json", std::time(nullptr));
  if (num_steps) {
    const Expected<EngineLoad> load = state.engine.load();
    profile.ends_after = *num_steps + (load ? load->steps_done : 0);
    watch(state, profile);
  }
  return said("Start profiling.\n");
}

HttpResponse stop(ApiState&, Profile& profile, const HttpRequest&) {
  if (!profile.file) return net::error_response(400, "no profile is under way");
  const std::string name = profile.file->string();
  end(profile);
  return said("Stop profiling. The trace is in " + name + "\n");
}

}  // namespace

void add_profile_routes(ApiState& state, std::vector<net::HttpRoute>& routes) {
  using Answer = HttpResponse (*)(ApiState&, Profile&, const HttpRequest&);
  const auto profile = std::make_shared<Profile>(state.profile_thread);
  state.end_profile = [profile] {
    if (profile->file) end_unasked(*profile);
  };
  const auto add = [&](const char* path, Answer answer) {
    routes.emplace_back(
        "POST", path, net::RouteClass::kControl,
        answer_on(state.profile_thread, [&state, profile, answer](const HttpRequest& request) {
          return answer(state, *profile, request);
        }));
  };
  add("/start_profile", start);
  add("/stop_profile", stop);
}

}  // namespace slime::engine
