/// How long new weights take from ranks that train parts of a model to engines of the whole model on
/// the same GPUs (sync/reshard.h).

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "bench/flags.h"
#include "core/clock.h"
#include "core/json_lines.h"
#include "kernels/gpu/gpu.h"
#include "sync/reshard.h"

namespace slime::bench {
namespace {

struct ReshardOptions {
  std::string name;
  ShapeOptions shape;
  int repeats = 5;  // behind the first
  RankOptions ranks;
};

constexpr int64_t kProbeBytes = int64_t{1} << 30;

double seconds_of(const Clock& clock, const std::function<void()>& work) {
  const auto start = clock.now();
  work();
  return seconds_between(start, clock.now());
}

/// Of each rank to the next one and from the one before at once: bytes a second in one direction.
double link_bytes_per_second(comm::RankGroup& group, const Clock& clock) {
  const auto options = at::TensorOptions(at::kByte).device(at::kCUDA);
  const Tensor sent = at::zeros({kProbeBytes}, options), received = at::empty_like(sent);
  const int size = group.size();
  const std::array messages{
      comm::Message{comm::Message::Direction::kSend, (group.rank() + 1) % size, sent},
      comm::Message{comm::Message::Direction::kReceive, (group.rank() + size - 1) % size,
                    received}};
  double best = 1e9;
  for (int i = 0; i < 4; ++i) {
    group.barrier("measuring");
    best = std::min(best, seconds_of(clock, [&] {
                      group.exchange(messages, "exchange", "measuring the link");
                      group.barrier("measuring");
                    }));
  }
  return static_cast<double>(kProbeBytes) / best;
}

void measure_reshard(const ReshardOptions& options) {
  RankProcesses processes(options.ranks, {});
  const comm::Mesh& mesh = processes.mesh();
  const model::ModelConfig shape = read_shape(options.shape);
  const auto trained = make_up_network(shape, kTrainingWeightBound, mesh);
  const auto engine = make_up_network(shape, kTrainingWeightBound);
  const SystemClock clock;
  const double planning = seconds_of(
      clock, [&] { sync::Reshard(mesh, trained->weights(), engine->weights()).bytes_received(); });
  const sync::Reshard reshard(mesh, trained->weights(), engine->weights());
  std::vector<double> seconds;
  for (int i = 0; i <= options.repeats; ++i) {
    mesh.world().barrier("measuring");
    const double once = seconds_of(clock, [&] { reshard.run(); });
    if (i > 0) seconds.push_back(once);
  }
  const double link = link_bytes_per_second(mesh.world(), clock);
  if (mesh.rank() > 0) return;
  std::ranges::sort(seconds);
  const auto received = static_cast<double>(reshard.bytes_received());
  write_json_line({{"name", options.name},
                   {"layout", options.ranks.layout},
                   {"value", 1e3 * seconds.front()},
                   {"unit", "ms"},
                   {"median_ms", 1e3 * seconds[seconds.size() / 2]},
                   {"link_ms", 1e3 * received / link},
                   {"link_gb_per_second", 1e-9 * link},
                   {"received_gb", 1e-9 * received},
                   {"planning_ms", 1e3 * planning},
                   {"gpu", kernels::opened_gpu().description()}});
}

}  // namespace

int reshard(const std::string& name, Arguments arguments) {
  ReshardOptions options{.name = name, .ranks = {.layout = "tp2-sp"}};
  Flags flags("New weights of ranks that train parts of a model, in engines on the same GPUs.",
              name);
  flags.shape(options.shape);
  flags.repeats(options.repeats, "The best counts");
  flags.ranks(options.ranks, name, arguments, "Of the ranks that train: tp2-sp, pp2, ...");
  if (const auto exit_code = flags.take(arguments)) return *exit_code;
  measure_reshard(options);
  return 0;
}

}  // namespace slime::bench
