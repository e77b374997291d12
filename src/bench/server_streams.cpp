/// Streams of a server under load: gaps between tokens, refusals, CPU per token, memory. Chats of OpenAI's
/// protocol, so any server of it can be measured; bench/serving/load.py starts `slime serve` for it.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <sstream>

#include "bench/flags.h"
#include "bench/stream_client.h"
#include "core/error.h"
#include "core/json_lines.h"

namespace slime::bench {
namespace {

struct ServerStreamsOptions {
  std::string url = "http://127.0.0.1:30000";
  std::string model = "default";
  std::string prompt = "Tell me something. Tell me something. Tell me something. ";
  int64_t tokens = 256;
  int64_t process = 0;
  StreamPlan plan;
};

/// CPU seconds of a process's threads, and its memory, as /proc has them.
class ProcessFigures final {
 public:
  explicit ProcessFigures(int64_t process) : folder_(fmt::format("/proc/{}", process)) {}

  std::map<std::string, double> cpu_seconds() const {
    std::map<std::string, double> seconds;
    std::error_code error;
    for (const auto& task : std::filesystem::directory_iterator(folder_ / "task", error)) {
      std::ifstream file(task.path() / "stat");
      std::string line;
      std::getline(file, line);
      const std::size_t name_end = line.rfind(')');
      if (name_end == std::string::npos) continue;
      std::istringstream fields(line.substr(name_end + 1));
      std::string word;
      for (int i = 0; i < 11; ++i) fields >> word;
      double user = 0, system = 0;
      fields >> user >> system;
      seconds[task.path().filename()] =
          (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
    }
    return seconds;
  }

  double resident_mib() const {
    std::ifstream file(folder_ / "status");
    std::string line;
    while (std::getline(file, line)) {
      if (line.starts_with("VmRSS:")) return std::stod(line.substr(6)) / 1024;
    }
    return 0;
  }

 private:
  const std::filesystem::path folder_;
};

/// Of the measured time.
class ServerFigures final : public StreamWatcher {
 public:
  explicit ServerFigures(int64_t process) {
    if (process > 0) figures_.emplace(process);
  }

  void begin() override {
    if (figures_) first_ = figures_->cpu_seconds();
  }
  void tick() override {
    if (!figures_) return;
    last_ = figures_->cpu_seconds();
    memory_.push_back(figures_->resident_mib());
  }

  void add_to(json::object& line, double num_tokens, double seconds) const {
    if (!figures_ || memory_.empty()) return;
    std::vector<double> by_thread;
    for (const auto& [thread, spent] : last_) {
      const auto before = first_.find(thread);
      by_thread.push_back(spent - (before == first_.end() ? 0 : before->second));
    }
    std::ranges::sort(by_thread, std::greater());
    const double all = std::accumulate(by_thread.begin(), by_thread.end(), 0.0);
    line["cores_used"] = all / seconds;
    line["cpu_us_per_token"] = 1e6 * all / num_tokens;
    // The thread that computes is the busiest; what the others did is HTTP, JSON and text.
    line["cpu_us_per_token_without_engine"] = 1e6 * (all - by_thread.front()) / num_tokens;
    json::array memory;
    const std::size_t stride = std::max<std::size_t>(1, memory_.size() / 10);
    for (std::size_t i = 0; i < memory_.size(); i += stride) memory.push_back(rounded(memory_[i]));
    line["memory_mib"] = std::move(memory);  // ten moments
    line["memory_mib_most"] = rounded(*std::ranges::max_element(memory_));
  }

 private:
  static double rounded(double mib) {
    return static_cast<double>(static_cast<int64_t>(mib * 10)) / 10;
  }

  std::optional<ProcessFigures> figures_;
  std::map<std::string, double> first_, last_;
  std::vector<double> memory_;
};

StreamPlan plan_of(const ServerStreamsOptions& options) {
  StreamPlan plan = options.plan;
  std::string_view rest = options.url;
  if (rest.starts_with("http://")) rest.remove_prefix(7);
  const std::size_t colon = rest.find(':');
  const std::string_view port = colon == std::string_view::npos ? "" : rest.substr(colon + 1);
  const auto read = std::from_chars(port.data(), port.data() + port.size(), plan.port);
  if (port.empty() || read.ec != std::errc() || read.ptr != port.data() + port.size())
    throw ConfigError(fmt::format("--url {}: http://ADDRESS:PORT, without a path", options.url));
  plan.host = rest.substr(0, colon);
  const std::string body = json::serialize(
      json::value{{"model", options.model},
                  {"messages", json::array{{{"role", "user"}, {"content", options.prompt}}}},
                  {"stream", true},
                  {"max_tokens", options.tokens},
                  {"temperature", 1.0},
                  {"ignore_eos", true}});
  plan.request = fmt::format(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n\r\n{}",
      rest, body.size(), body);
  return plan;
}

/// Milliseconds at the middle, at 99 of 100, at 999 of 1,000, and the longest.
json::object spread(std::vector<float> seconds) {
  if (seconds.empty()) return {};
  std::ranges::sort(seconds);
  const auto at = [&](double share) {
    const auto place = static_cast<std::size_t>(share * static_cast<double>(seconds.size()));
    return 1e3 * static_cast<double>(seconds[std::min(place, seconds.size() - 1)]);
  };
  return {{"p50", at(0.5)}, {"p99", at(0.99)}, {"p999", at(0.999)}, {"max", at(1)}};
}

}  // namespace

int server_streams(const std::string& name, Arguments arguments) {
  ServerStreamsOptions options;
  StreamPlan& plan = options.plan;
  Flags flags(
      "Streamed chats of a server, so many at once, each answer followed by the next request: "
      "milliseconds between tokens as the kernel received them, and what was refused.",
      name);
  flags.add("--url", options.url, "http://ADDRESS:PORT of the server");
  flags.add("--model", options.model, "Its name in the requests");
  flags.add("--prompt", options.prompt, "The user's message");
  flags.count("--tokens", options.tokens, "Of each answer");
  flags.count("--streams", plan.num_streams, "At once");
  flags.add("--seconds", plan.seconds, "That are measured")->check(CLI::PositiveNumber);
  flags.add("--warm-up", plan.warm_up_seconds, "Seconds before them")->check(CLI::PositiveNumber);
  flags.add("--process", options.process, "The server's, on this machine: its CPU and memory");
  if (const auto exit_code = flags.take(arguments)) return *exit_code;

  ServerFigures server(options.process);
  StreamCounts counts = run_streams(plan_of(options), server);
  json::object statuses;
  for (const auto& [status, count] : counts.statuses) statuses[std::to_string(status)] = count;
  const auto num_tokens = static_cast<double>(counts.num_tokens);
  json::object line{{"benchmark", name},
                    {"streams", plan.num_streams},
                    {"seconds", plan.seconds},
                    {"tokens_per_second", num_tokens / plan.seconds},
                    {"answers", counts.num_answers},
                    {"statuses", std::move(statuses)},
                    {"connections_lost", counts.num_lost},
                    {"tokens_together", static_cast<double>(counts.num_together) / num_tokens},
                    {"gap_ms", spread(counts.gaps)},
                    {"first_token_ms", spread(counts.first_tokens)}};
  const json::object& gaps = line["gap_ms"].get_object();
  if (!gaps.empty())
    line["gap_p99_over_p50"] = gaps.at("p99").as_double() / gaps.at("p50").as_double();
  server.add_to(line, std::max(num_tokens, 1.0), plan.seconds);
  write_json_line(line);
  return counts.num_lost > 0 || counts.gaps.empty() ? 1 : 0;
}

}  // namespace slime::bench
