/// Sums of small tensors over the GPUs of this machine: through memory that ranks write to directly
/// (kernels/gpu/peer_collectives.h), and through NCCL.

#include <ATen/ATen.h>

#include <chrono>
#include <functional>
#include <string>

#include "bench/flags.h"
#include "bench/harness.h"
#include "core/json_lines.h"
#include "kernels/gpu/peer_collectives.h"

namespace slime::bench {
namespace {

struct RankCollectiveOptions {
  std::vector<int64_t> kib = {8, 64, 512, 2048};  // of a rank's tensor, in bfloat16
  int64_t hidden = 4096;  // of the rows that are also added to a residual stream and normed
  RankOptions ranks;
};

constexpr int kCalls = 100;

void measure_rank_collectives(const RankCollectiveOptions& options) {
  RankProcesses processes(options.ranks, {});
  const comm::Mesh& mesh = processes.mesh();
  comm::RankGroup& group = mesh.world();
  const auto all_gather = [&](const std::string& bytes) {
    return group.all_gather(bytes, "reaching the memory of other ranks");
  };
  const auto peers = kernels::make_peer_collectives({.rank = group.rank(),
                                                     .size = group.size(),
                                                     .deadline = std::chrono::minutes(1),
                                                     .all_gather = all_gather});
  const auto options_of_x = at::TensorOptions(at::kBFloat16).device(at::kCUDA);
  const auto microseconds = [&](const std::function<void(int)>& call) {
    group.barrier("measuring");
    return 1e6 * recorded_seconds(kCalls, call);
  };
  for (const int64_t kib : options.kib) {
    const int64_t numbers = kib * 1024 / 2;
    const Tensor x_N = at::zeros({numbers}, options_of_x);
    json::object line{
        {"name", "rank-collectives"}, {"kib", kib}, {"ranks", group.size()}, {"unit", "us"}};
    line["nccl"] = microseconds([&](int) { group.all_reduce_(x_N, "measuring"); });
    const auto measure = [&](const char* way, int64_t limit) {
      peers->set_flagged_words_limit(limit);
      if (!peers->takes(x_N)) return;
      line[way] = microseconds([&](int) { peers->sum_(x_N); });
      if (numbers % options.hidden != 0) return;
      const Tensor residual_TH = x_N.view({-1, options.hidden}),
                   part_TH = at::zeros(residual_TH.sizes(), options_of_x.dtype(at::kFloat)),
                   weight_H = at::ones({options.hidden}, options_of_x);
      if (!peers->has_add_norm(residual_TH)) return;
      line[std::string(way) + "_add_norm"] =
          microseconds([&](int) { peers->add_norm_(residual_TH, part_TH, {}, weight_H, 1e-6); });
    };
    constexpr int64_t kMostWords = int64_t{1} << 20;
    if (kib * 1024 <= kMostWords) measure("flagged_words", kMostWords);
    measure("flagged_rows", 0);
    if (group.rank() == 0) write_json_line(line);
  }
  group.barrier("leaving together");
}

}  // namespace

int rank_collectives(const std::string& name, Arguments arguments) {
  RankCollectiveOptions options;
  options.ranks.layout = "tp2";
  Flags flags("Sums of small tensors over GPUs: through peer memory, and through NCCL.", name);
  flags.list("--kib", options.kib, "Sizes of the tensors");
  flags.add("--hidden", options.hidden, "Numbers of a row that is normed");
  flags.ranks(options.ranks, name, arguments, "tp2, tp4, ...");
  if (const auto exit_code = flags.take(arguments)) return *exit_code;
  measure_rank_collectives(options);
  return 0;
}

}  // namespace slime::bench
