// Ranks on several GPUs: what their groups promise, and the trainer on two devices against one.

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "core/clock.h"
#include "gpu_rank_processes.h"
#include "layout_precision.h"
#include "train/whole_tensors.h"
#include "train_cases.h"

namespace slime::parity {
namespace {

using namespace comm;
using ::testing::StartsWith;
using train::Trainer;

const auto kGpu = at::TensorOptions().device(at::kCUDA);

/// x[i] = 100 rank + i % 97: what each element came from can be read off, and sums are exact in 16 bits.
Tensor numbers_of(int rank, int64_t n, at::ScalarType type) {
  return (at::arange(n, kGpu.dtype(at::kLong)).remainder(97) + 100 * rank).to(type);
}

bool are_same(const Tensor& x, const Tensor& y) { return at::equal(x.cpu(), y.cpu()); }

std::vector<Range> shards_of(int64_t n, bool are_equal) {
  return are_equal ? std::vector<Range>{{0, n / 2}, {n / 2, n}}
                   : std::vector<Range>{{0, n}, {n, n}};
}

TEST(NcclGroup, EveryOperationEqualsItsTwin) {
  SLIME_NEEDS_GPUS(2);
  on_gpus({.dp = 2}, [](const Mesh& mesh) {
    RankGroup& group = mesh.dp();
    const int rank = group.rank(), other = 1 - rank;
    for (const auto type :
         {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong, at::kInt}) {
      for (const int64_t n : {2, 254, 100'000}) {
        const Tensor sum = numbers_of(0, n, type) + numbers_of(1, n, type);
        Tensor x = numbers_of(rank, n, type);
        group.all_reduce_(x, "summing");
        EXPECT_TRUE(are_same(x, sum)) << type << " " << n;
        x = numbers_of(rank, n, type);
        group.all_reduce_(x, "maximum", Reduction::kMax);
        EXPECT_TRUE(are_same(x, numbers_of(1, n, type)));
        x = numbers_of(rank, n, type);
        group.all_reduce_(x, "minimum", Reduction::kMin);
        EXPECT_TRUE(are_same(x, numbers_of(0, n, type)));
        for (const bool are_equal : {true, false}) {
          const std::vector<Range> shards = shards_of(n, are_equal);
          const Range own = shards[static_cast<std::size_t>(rank)];
          x = numbers_of(rank, n, type);
          group.reduce_scatter_(x, shards, "scattering");
          EXPECT_TRUE(
              are_same(x.narrow(0, own.begin, own.size()), sum.narrow(0, own.begin, own.size())));
          x = at::zeros({n}, kGpu.dtype(type));
          x.narrow(0, own.begin, own.size()).fill_(rank + 1);
          group.all_gather_(x, shards, "gathering");
          Tensor whole = at::zeros({n}, kGpu.dtype(type));
          for (int r = 0; r < 2; ++r) {
            const Range shard = shards[static_cast<std::size_t>(r)];
            whole.narrow(0, shard.begin, shard.size()).fill_(r + 1);
          }
          EXPECT_TRUE(are_same(x, whole));
        }
        for (int root = 0; root < 2; ++root) {
          x = numbers_of(rank, n, type);
          group.broadcast_(x, root, "handing out");
          EXPECT_TRUE(are_same(x, numbers_of(root, n, type)));
        }
        using enum Message::Direction;
        const Tensor first = numbers_of(rank, n, type), second = first + 1;
        const Tensor got = at::empty_like(first), got_next = at::empty_like(first);
        const std::vector<Message> messages{{kReceive, other, got},
                                            {kSend, other, first},
                                            {kSend, other, at::empty({0}, kGpu)},
                                            {kSend, other, second},
                                            {kReceive, other, got_next}};
        group.exchange(messages, "exchange", "streams");
        EXPECT_TRUE(are_same(got, numbers_of(other, n, type)));
        EXPECT_TRUE(are_same(got_next, numbers_of(other, n, type) + 1));
      }
    }
    EXPECT_EQ(group.all_gather(std::string(3 * rank, 'x'), "naming"),
              (std::vector<std::string>{"", "xxx"}));
    const Tensor on_host = at::full({5}, rank + 1);
    group.all_reduce_(on_host, "numbers of the host");
    EXPECT_TRUE(at::equal(on_host, at::full({5}, 3)));
    const std::vector<int64_t> rows{1, 2};
    const Tensor in = at::full({3, 4}, rank, kGpu);
    const std::vector<int64_t> out_rows =
        rank == 0 ? std::vector<int64_t>{1, 1} : std::vector<int64_t>{2, 2};
    const Tensor mixed = all_to_all(group, in, rows, out_rows, "dispatching");
    EXPECT_EQ(mixed.size(0), rank == 0 ? 2 : 4);
    EXPECT_EQ(mixed.sum().item<double>(), 4.0 * (rank == 0 ? 1 : 2));
  });
}

TEST(NcclGroup, OperationsAreInTheOrderOfTheirStream) {
  SLIME_NEEDS_GPUS(2);
  on_gpus({.dp = 2}, [](const Mesh& mesh) {
    // Nobody waits in between: each sum reads what the kernels before it wrote.
    Tensor x = at::ones({1 << 20}, kGpu.dtype(at::kDouble));
    for (int i = 0; i < 20; ++i) {
      x.mul_(1.5);
      mesh.dp().all_reduce_(x, "summing");
      x.sub_(1);
    }
    double expected = 1;
    for (int i = 0; i < 20; ++i) expected = 3 * expected - 1;
    EXPECT_EQ(x.min().item<double>(), expected);
    EXPECT_EQ(x.max().item<double>(), expected);
  });
}

TEST(NcclGroup, AMissingRankIsNamedWithPurposeOperationAndAxis) {
  SLIME_NEEDS_GPUS(2);
  std::string message = "none";
  on_gpus(
      {.tp = 2},
      [&](const Mesh& mesh) {
        mesh.tp().all_reduce_(at::ones({8}, kGpu), "meeting");
        mesh.tp().barrier("meeting");
        if (mesh.rank() == 1) return std::this_thread::sleep_for(std::chrono::seconds(6));
        const Tensor x = at::ones({1000}, kGpu);
        mesh.tp().all_reduce_(x, "stating");  // returns: it is in the stream
        x.cpu();                              // until it was given up
        try {
          for (int i = 0; i < 20; ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            mesh.tp().all_reduce_(x, "going on");
          }
        } catch (const GroupError& error) {
          message = error.what();
        }
      },
      std::chrono::milliseconds(2000), /*leaves_together=*/false);
  EXPECT_EQ(message, "rank 0: stating: all-reduce over tp (0 of 2): 2000 ms have passed");
}

// The trainer.

struct Outcome32 {
  algo::MetricSums sums;
  std::map<std::string, Tensor> grads;
  double norm = 0;
};

train::TrainConfig config_for(const ParallelLayout& layout) {
  train::TrainConfig config = grpo_config();
  config.policy.kl_loss = {};
  config.batching.global_batch_size = 12;
  config.batching.use_dynamic_batch_size = true;
  config.batching.max_tokens_per_gpu = 50;
  config.batching.dp = layout.dp;
  config.packing = {true, 1};
  config.bucket_elements = 10'000;  // some a layer
  config.lr = {.lr = 1e-3, .style = train::DecayStyle::kConstant};
  return config;
}

train::TrainBatch made_up_batch(int64_t vocab_size) {
  return train::make_train_batch(made_up_groups(3, 4, vocab_size), {});
}

/// By name, in float64, at rank 0.
std::map<std::string, Tensor> whole_gradients(Trainer& trainer, model::Network& network,
                                              const Mesh& mesh) {
  const train::WholeTensors whole(mesh, network.weights());
  const auto own =
      train::HeldBuffer::shards(trainer.optimizer().own_shards_of(network.weights().grad()));
  std::map<std::string, Tensor> grads;
  for (std::size_t i = 0; i < whole.entries().size(); ++i) {
    const Tensor grad = whole.gather(i, own);
    if (mesh.rank() == 0) grads[whole.entries()[i].name] = grad.cpu().to(at::kDouble);
  }
  return grads;
}

/// Sums and gradients of one training step, brought together at rank 0.
Outcome32 gradients_on(const ParallelLayout& layout, const model::Precision& precision,
                       const std::string& name) {
  Outcome32 outcome;
  on_gpus(layout, [&](const Mesh& mesh) {
    const auto network = model::load_network(kModels + name, precision, mesh);
    const train::TrainBatch batch = made_up_batch(network->config().vocab_size);
    const SystemClock clock;
    Trainer trainer(*network, config_for(layout), clock, {}, mesh);
    const algo::MetricSums sums = trainer.accumulate_gradients(
        trainer.divide(batch).at(static_cast<std::size_t>(mesh.at().dp)));
    const double norm = std::sqrt(trainer.optimizer().gradient_squares());
    outcome.grads = whole_gradients(trainer, *network, mesh);
    outcome.sums = sums;
    outcome.norm = norm;
  });
  return outcome;
}

void expect_near(const Outcome32& other, const Outcome32& plain, double tolerance) {
  EXPECT_NEAR(other.norm, plain.norm, tolerance * plain.norm);
  for (const auto& [name, value] : plain.sums)
    EXPECT_NEAR(other.sums.at(name), value, tolerance * std::max(1.0, std::abs(value))) << name;
  ASSERT_EQ(other.grads.size(), plain.grads.size());
  for (const auto& [name, grad] : plain.grads) {
    const double size = grad.norm().item<double>();
    EXPECT_GT(size, 0) << name;
    EXPECT_LT((other.grads.at(name) - grad).norm().item<double>(), tolerance * size) << name;
  }
}

const std::vector<ParallelLayout> kLayouts{{.dp = 2},
                                           {.tp = 2},
                                           {.tp = 2, .sequence_parallel = true},
                                           {.cp = 2},
                                           {.cp = 2, .contiguous_context = true},
                                           {.pp = 2, .first_layers = 2}};
std::string name_of_layout(const ParallelLayout& layout) {
  return fmt::format("dp {} tp {} cp {} pp {} ep {} etp {}", layout.dp, layout.tp, layout.cp,
                     layout.pp, layout.ep, layout.etp);
}

TEST(GpuRanks, LossAndGradientAreThoseOfOneDevice) {
  SLIME_NEEDS_GPUS(2);
  const auto precision = model::Precision::on_gpu("float32");
  const Outcome32 plain = gradients_on({}, precision, "qwen3");
  for (const ParallelLayout& layout : kLayouts) {
    SCOPED_TRACE(name_of_layout(layout));
    expect_near(gradients_on(layout, precision, "qwen3"), plain, 1e-4);
  }
}

TEST(GpuRanks, WithExpertsLossAndGradientAreThoseOfOneDevice) {
  SLIME_NEEDS_GPUS(2);
  const auto precision = model::Precision::on_gpu("float32");
  const Outcome32 plain = gradients_on({}, precision, "qwen3_moe");
  for (const ParallelLayout& layout :
       {ParallelLayout{.dp = 2, .ep = 2}, ParallelLayout{.tp = 2}, ParallelLayout{.tp = 2, .ep = 2},
        ParallelLayout{.tp = 2, .etp = 2},
        ParallelLayout{.tp = 2, .ep = 2, .sequence_parallel = true},
        ParallelLayout{.cp = 2, .ep = 2}}) {
    SCOPED_TRACE(name_of_layout(layout));
    expect_near(gradients_on(layout, precision, "qwen3_moe"), plain, 1e-4);
  }
}

std::vector<BatchGradient> gradients_of_batches(const ParallelLayout& layout,
                                                const model::Precision& precision) {
  std::vector<BatchGradient> gradients;
  on_gpus(layout, [&](const Mesh& mesh) {
    const auto network = model::load_network(kModels + "qwen3", precision, mesh);
    const SystemClock clock;
    Trainer trainer(*network, ratios_of_one(config_for(layout)), clock, {}, mesh);
    for (const train::TrainBatch& batch : precision_batches(network->config().vocab_size)) {
      trainer.accumulate_gradients(
          trainer.divide(batch).at(static_cast<std::size_t>(mesh.at().dp)));
      gradients.push_back({std::sqrt(trainer.optimizer().gradient_squares()),
                           whole_gradients(trainer, *network, mesh)});
    }
  });
  return gradients;
}

TEST(GpuRanks, InBfloat16ALayoutIsAsFarFromFloat32AsOneDevice) {
  SLIME_NEEDS_GPUS(2);
  const auto precision = model::Precision::on_gpu("bfloat16");
  const auto exact = gradients_of_batches({}, model::Precision::on_gpu("float32"));
  const auto one_device = gradients_of_batches({}, precision);
  for (const ParallelLayout& layout : kLayouts) {
    SCOPED_TRACE(name_of_layout(layout));
    const auto own = gradients_of_batches(layout, precision);
    if (!own.empty()) expect_as_far_as_one_device(own, one_device, exact);
  }
}

/// Weights after three steps, brought together at rank 0.
Tensor trained_on(const ParallelLayout& layout, bool is_on_host) {
  Tensor weights;
  on_gpus(layout, [&](const Mesh& mesh) {
    const auto network =
        model::load_network(kModels + "qwen3", model::Precision::on_gpu("float32"), mesh);
    const train::TrainBatch batch = made_up_batch(network->config().vocab_size);
    const SystemClock clock;
    train::TrainConfig config = config_for(layout);
    config.adam.on_host = is_on_host;
    Trainer trainer(*network, config, clock, {}, mesh);
    for (int i = 0; i < 3; ++i) {
      trainer.train(trainer.divide(batch).at(static_cast<std::size_t>(mesh.at().dp)));
      trainer.weights_published();
      trainer.release_gradients();
    }
    const train::WholeTensors whole(mesh, network->weights());
    std::vector<Tensor> all;
    for (std::size_t i = 0; i < whole.entries().size(); ++i) {
      const Tensor weight = whole.gather(i, train::HeldBuffer::whole(network->weights().flat()));
      if (mesh.rank() == 0) all.push_back(weight.cpu().to(at::kDouble).view({-1}));
    }
    if (mesh.rank() == 0) weights = at::cat(all);
  });
  return weights;
}

TEST(GpuRanks, ThreeStepsMoveTheWeightsAsOnOneDevice) {
  SLIME_NEEDS_GPUS(2);
  const Tensor plain = trained_on({}, false);
  for (const auto& [layout, is_on_host] : std::vector<std::pair<ParallelLayout, bool>>{
           {{.dp = 2}, false}, {{.dp = 2}, true}, {{.cp = 2}, false}}) {
    const Tensor weights = trained_on(layout, is_on_host);
    if (!weights.defined()) continue;  // the process of another rank
    // Adam divides by the root of the second moment: the smallest gradients move as far as the
    // largest, and their signs are rounding.
    EXPECT_LT((weights - plain).norm().item<double>(), 1e-3 * plain.norm().item<double>());
  }
}

}  // namespace
}  // namespace slime::parity
