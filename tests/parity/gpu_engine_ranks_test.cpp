// Engines of several ranks on GPUs, whose tokens are those of an engine on one.

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>

#include "engine/ranks/following_rank.h"
#include "engine/ranks/leading_runner.h"
#include "engine/ranks/peer_group.h"
#include "engine/remote/engine_server.h"
#include "engine/remote/remote_engine.h"
#include "engine/served_adapters.h"
#include "engine_rank_cases.h"
#include "fixture_models.h"
#include "gpu_rank_processes.h"
#include "model/adapter_files.h"
#include "model/whole_weights.h"

namespace slime::parity {
namespace {

using comm::Mesh;
using engine::EngineConfig;
using engine::GenerateRequest;
using engine::GenerateUpdate;
using testing::expect_same;
using testing::greedy_request;
using ::testing::HasSubstr;
using testing::Responses;
using testing::sampled_request;
using testing::some_tokens;
using testing::TestEngine;
using testing::workload;

/// This rank's slices, on its GPU.
using MakeSlices = std::function<std::unique_ptr<model::Network>(const Mesh&)>;

constexpr std::chrono::milliseconds kDeadline{5000};
constexpr int64_t kCacheBytes = int64_t{32} << 20;

MakeSlices slices_of(const std::string& model) {
  return [directory = golden_models::directory(model)](const Mesh& mesh) {
    return model::load_network(directory, model::Precision::on_gpu("float32"), mesh);
  };
}

/// A connection from rank 0 to rank 1.
int connected(const Mesh& mesh) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name =
      mesh.world().all_gather(fmt::format("slime-test-{}", ::getpid()), "meeting")[0];
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // abstract: no file
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const int end = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (mesh.rank() == 0) {
    EXPECT_EQ(::bind(end, generic, size), 0);
    EXPECT_EQ(::listen(end, 1), 0);
  }
  mesh.world().barrier("listening");
  if (mesh.rank() == 1) {
    EXPECT_EQ(::connect(end, generic, size), 0);
    return end;
  }
  const int accepted = ::accept(end, nullptr, nullptr);
  ::close(end);
  return accepted;
}

/// Rank 0 of an engine of two.
class LeadingEngine {
 public:
  LeadingEngine(const Mesh& mesh, const MakeSlices& make, int descriptor, EngineConfig config,
                int64_t served)
      : network_(make(mesh)), followers_({descriptor}) {
    config.mesh = &mesh;
    if (served > 0) {
      adapters_ = std::make_unique<engine::ServedAdapters>(*network_, served, mesh, &followers_);
      config.adapters = adapters_.get();
    }
    config.kv_cache_bytes = kCacheBytes / 2;
    engine_ = std::make_unique<engine::Engine>(
        *network_, config, clock_,
        [&](model::Network& network, const engine::StepRunnerConfig& steps) {
          return std::make_unique<engine::LeadingRunner>(engine::make_step_runner(network, steps),
                                                         followers_, mesh.tp(), steps);
        });
    if (!adapters_) return;
    adapters_->change_with(*engine_);
  }
  engine::Engine& engine() { return *engine_; }
  engine::ServedAdapters& adapters() { return *adapters_; }
  model::Network& network() { return *network_; }
  engine::Followers& followers() { return followers_; }

  std::vector<GenerateUpdate> generate(const std::vector<GenerateRequest>& requests) {
    return answers_of(*engine_, requests);
  }
  static std::vector<GenerateUpdate> answers_of(engine::Engine& engine,
                                                const std::vector<GenerateRequest>& requests) {
    Responses responses;
    EXPECT_TRUE(engine.pause(engine::PauseMode::kInPlace));
    for (const auto& request : requests) engine.submit(request, responses.sink());
    EXPECT_TRUE(engine.resume());
    std::vector<GenerateUpdate> out;
    for (const auto& request : requests) out.push_back(responses.wait(request.rid));
    return out;
  }

 private:
  SystemClock clock_;
  std::unique_ptr<model::Network> network_;
  engine::Followers followers_;
  std::unique_ptr<engine::ServedAdapters> adapters_;
  std::unique_ptr<engine::Engine> engine_;
};

/// Rank 0 calls body(engine), whose requests may name so many adapters; rank 1 follows it.
void on_two_ranks(const MakeSlices& make, const model::Precision& precision, bool nccl_alone,
                  const EngineConfig& config,
                  const std::function<void(const Mesh&, LeadingEngine&)>& body,
                  int64_t served = 0) {
  on_gpus(
      comm::engine_layout(2),
      [&](const Mesh& mesh) {
        const at::NoGradGuard no_grad;
        const int end = connected(mesh);
        if (mesh.rank() == 0) {
          LeadingEngine engine(mesh, make, end, config, served);
          body(mesh, engine);
        } else {
          engine::FollowingRank(end, mesh, precision, make(mesh)).follow();
        }
      },
      std::chrono::seconds(60), /*leaves_together=*/true,
      engine::with_peer_collectives(kDeadline, nccl_alone));
}

EngineConfig whole_cache(EngineConfig config) {
  config.kv_cache_bytes = kCacheBytes;
  return config;
}

class GpuEngineRanks : public ::testing::TestWithParam<bool> {};

TEST_P(GpuEngineRanks, TwoRanksDrawTheTokensOfOne) {
  SLIME_NEEDS_GPUS(2);
  for (const char* model : {"qwen3", "llama3_rope", "qwen2", "qwen3_moe", "glm4_moe", "kimi_k2",
                            "glm4_moe_lite", "deepseek_v3"}) {
    if (!std::filesystem::exists(golden_models::directory(model) / "golden.json")) {
      std::printf("%s is not in this tree, nor beside it\n", model);
      continue;
    }
    const EngineConfig config{.max_prefill_tokens = 20};
    on_two_ranks(slices_of(model), model::Precision::on_gpu("float32"), GetParam(), config,
                 [&](const Mesh&, LeadingEngine& two) {
                   SCOPED_TRACE(model);
                   TestEngine one(model, whole_cache(config), model::Precision::on_gpu("float32"));
                   const auto requests = workload(one.network().config().vocab_size);
                   const auto expected = LeadingEngine::answers_of(one.engine(), requests);
                   // The second time steps are recorded, the third replayed.
                   for (int round = 0; round < 3; ++round) {
                     expect_same(two.generate(requests), expected);
                     EXPECT_TRUE(two.engine().flush_cache());
                   }
                 });
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, GpuEngineRanks, ::testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "Nccl" : "PeerMemory");
});

/// Large enough for fused chains on each of two ranks.
model::ModelConfig wide_shape() {
  model::ModelConfig config = model::read_model_config(golden_models::directory("qwen3"));
  config.hidden_size = 256;
  config.num_heads = 8;
  config.num_kv_heads = 2;
  config.head_dim = 64;
  config.rotary_dim = 64;
  config.intermediate_size = 512;
  config.vocab_size = 1001;
  config.initializer_range = 0.08;
  return config;
}

/// Experts in all layers but the first, beside a shared one where there is latent attention.
model::ModelConfig wide_experts(bool is_latent) {
  json::object shape = json::parse(R"({"vocab_size": 1001, "hidden_size": 256,
      "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 512,
      "moe_intermediate_size": 128, "num_experts_per_tok": 4, "norm_topk_prob": true,
      "max_position_embeddings": 256, "rope_theta": 10000, "rms_norm_eps": 1e-6,
      "tie_word_embeddings": false, "hidden_act": "silu", "initializer_range": 0.08})")
                           .as_object();
  const json::object more = json::parse(is_latent ? R"({"architectures": ["DeepseekV3ForCausalLM"],
      "model_type": "deepseek_v3", "num_key_value_heads": 8, "first_k_dense_replace": 1,
      "n_routed_experts": 16, "n_shared_experts": 2, "n_group": 1, "topk_group": 1,
      "scoring_func": "sigmoid", "topk_method": "noaux_tc", "routed_scaling_factor": 2.0,
      "kv_lora_rank": 512, "q_lora_rank": 128, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
      "v_head_dim": 128})"
                                                  : R"({"architectures": ["Qwen3MoeForCausalLM"],
      "model_type": "qwen3_moe", "num_key_value_heads": 2, "head_dim": 64, "num_experts": 16,
      "mlp_only_layers": [0], "decoder_sparse_step": 1})")
                                .as_object();
  for (const auto& field : more) shape[field.key()] = field.value();
  return model::parse_model_config(shape, "wide experts");
}

/// Numbers in bfloat16, stored so or in another precision; every process makes the same.
MakeSlices slices_of_shape(const model::ModelConfig& config,
                           const std::string& precision = "bfloat16") {
  return [config, precision](const Mesh& mesh) {
    const auto whole = model::make_network(
        config, {.weights = at::kBFloat16, .activations = at::kFloat}, /*seed=*/7);
    auto network = model::make_blank_network(config, model::Precision::on_gpu(precision), mesh);
    const Tensor flat_N = whole->weights().flat().to(network->weights().flat().scalar_type());
    model::write_whole_(network->weights(), 0,
                        {static_cast<const char*>(flat_N.data_ptr()), flat_N.nbytes()});
    return network;
  };
}

TEST_P(GpuEngineRanks, InBfloat16LogProbsOfDecodeAreThoseThatOneScores) {
  SLIME_NEEDS_GPUS(2);
  on_two_ranks(
      slices_of_shape(wide_shape()), model::Precision::on_gpu("bfloat16"), GetParam(), {},
      [&](const Mesh&, LeadingEngine& two) {
        TestEngine one(slices_of_shape(wide_shape())(Mesh::single()), whole_cache({}));
        // Narrow products, those of up to 64 rows, wide ones and cuBLASLt's.
        for (const int count : {1, 2, 20, 80, 200}) {
          std::vector<GenerateRequest> requests;
          for (int i = 0; i < count; ++i) {
            requests.push_back(sampled_request(some_tokens(9 + i % 7, i, 1001), 12, i));
            requests.back().rid = fmt::format("{} of {}", i, count);
          }
          const auto sampled = two.generate(requests);
          for (int i = 0; i < count; ++i) {
            requests[i].input_ids.insert(requests[i].input_ids.end(), sampled[i].output_ids.begin(),
                                         sampled[i].output_ids.end());
            requests[i].sampling.max_new_tokens = 0;
            requests[i].logprob_start_len = 0;
          }
          const auto scored = LeadingEngine::answers_of(one.engine(), requests);
          double sum = 0;
          for (int i = 0; i < count; ++i) {
            const std::size_t begin =
                scored[i].input_log_probs.size() - sampled[i].output_ids.size();
            for (std::size_t t = 0; t < sampled[i].output_ids.size(); ++t) {
              const double difference =
                  std::abs(sampled[i].output_log_probs[t] - *scored[i].input_log_probs[begin + t]);
              EXPECT_LT(difference, 0.2) << requests[i].rid << " " << t;
              sum += difference;
            }
          }
          // Roundings of activations to 8 bits, through four layers.
          EXPECT_LT(sum / (12 * count), 0.03) << count;
        }
      });
}

/// Mean absolute difference between log-probs that an engine drew `count` responses with and those that
/// `scorer` gives them.
double difference_from(engine::Engine& scorer, std::vector<GenerateRequest> requests,
                       const std::vector<GenerateUpdate>& sampled) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].input_ids.insert(requests[i].input_ids.end(), sampled[i].output_ids.begin(),
                                 sampled[i].output_ids.end());
    requests[i].sampling.max_new_tokens = 0;
    requests[i].logprob_start_len = 0;
  }
  const auto scored = LeadingEngine::answers_of(scorer, requests);
  double sum = 0, count = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(sampled[i].output_ids.size(), 12U) << sampled[i].finish->message;
    const std::size_t begin = scored[i].input_log_probs.size() - sampled[i].output_ids.size();
    for (std::size_t t = 0; t < sampled[i].output_ids.size(); ++t, ++count)
      sum += std::abs(sampled[i].output_log_probs[t] - *scored[i].input_log_probs[begin + t]);
  }
  return sum / count;
}

/// Roundings change who is visited where scores of experts are close, on one rank as on two: what one
/// rank's decode differs from scores in float32 is the measure. Not from its own scores, which may come from
/// the same kernels.
TEST_P(GpuEngineRanks, InBfloat16ExpertsOfTwoRanksDifferFromScoresAsThoseOfOneDo) {
  SLIME_NEEDS_GPUS(2);
  for (const bool is_latent : {false, true}) {
    const MakeSlices make = slices_of_shape(wide_experts(is_latent));
    on_two_ranks(make, model::Precision::on_gpu("bfloat16"), GetParam(), {},
                 [&](const Mesh&, LeadingEngine& two) {
                   TestEngine one(make(Mesh::single()), whole_cache({}));
                   TestEngine exact(
                       slices_of_shape(wide_experts(is_latent), "float32")(Mesh::single()),
                       whole_cache({}));
                   for (const int count : {1, 2, 20, 80, 200}) {
                     std::vector<GenerateRequest> requests;
                     for (int i = 0; i < count; ++i) {
                       requests.push_back(sampled_request(some_tokens(9 + i % 7, i, 1001), 12, i));
                       requests.back().rid = fmt::format("{} of {}", i, count);
                     }
                     const auto of_two = two.generate(requests);
                     const auto of_one = LeadingEngine::answers_of(one.engine(), requests);
                     const double own = difference_from(exact.engine(), requests, of_one);
                     const double other = difference_from(exact.engine(), requests, of_two);
                     fmt::print("{} {}: {:.4f}, of one {:.4f}\n", is_latent ? "latent" : "heads",
                                count, other, own);
                     // A tenth of a nat would be another model; few numbers scatter.
                     EXPECT_LT(other, 1.5 * own + (count < 20 ? 0.05 : 0.01)) << count;
                   }
                 });
  }
}

std::string adapter_directory(const std::string& name) {
  return (std::filesystem::path(SLIME_SOURCE_DIR) / "tests/fixtures/lora" / name).string();
}

TEST_P(GpuEngineRanks, WithAnAdapterTwoRanksDrawTheTokensOfOne) {
  SLIME_NEEDS_GPUS(2);
  const auto precision = model::Precision::on_gpu("float32");
  for (const std::string name : {"qwen3/all_linear_rslora", "qwen3_moe/experts_fused",
                                 "qwen3_moe/head", "deepseek_v3/mla"}) {
    const std::string model = name.substr(0, name.find('/'));
    const MakeSlices make = [base = slices_of(model), name](const Mesh& mesh) {
      auto network = base(mesh);
      model::load_adapters(*network, adapter_directory(name), mesh);
      return network;
    };
    on_two_ranks(make, precision, GetParam(), {.max_prefill_tokens = 20},
                 [&](const Mesh&, LeadingEngine& two) {
                   SCOPED_TRACE(name);
                   TestEngine one(make(Mesh::single()), whole_cache({.max_prefill_tokens = 20}));
                   const auto requests = workload(one.network().config().vocab_size, 12);
                   const auto expected = LeadingEngine::answers_of(one.engine(), requests);
                   for (int round = 0; round < 3; ++round) {
                     expect_same(two.generate(requests), expected);
                     EXPECT_TRUE(two.engine().flush_cache());
                   }
                 });
  }
}

TEST_P(GpuEngineRanks, RowsOfABatchTakeTheAdaptersThatTheirRequestsName) {
  SLIME_NEEDS_GPUS(2);
  const auto precision = model::Precision::on_gpu("float16");
  const MakeSlices make = [precision](const Mesh& mesh) {
    return model::load_network(golden_models::directory("qwen3"), precision, mesh);
  };
  on_two_ranks(
      make, precision, GetParam(), {},
      [&](const Mesh&, LeadingEngine& two) {
        const SystemClock clock;
        const auto network = make(Mesh::single());
        engine::ServedAdapters adapters(*network, 2);
        EngineConfig config = whole_cache({});
        config.adapters = &adapters;
        engine::Engine one(*network, config, clock);
        adapters.change_with(one);
        const std::array<std::string, 3> names{"first", "", "second"};
        for (const std::string folder : {"qwen3/qv_r8", "qwen3/patterns"}) {
          for (engine::ServedAdapters* each : {&adapters, &two.adapters()}) {
            // The first name moves on to another version.
            ASSERT_TRUE(each->load("first", adapter_directory(folder), false, true));
            ASSERT_TRUE(
                each->load("second", adapter_directory("qwen3/all_linear_rslora"), false, true));
          }
          for (const int count : {1, 3, 20, 80}) {
            std::vector<GenerateRequest> requests;
            for (int i = 0; i < count; ++i) {
              requests.push_back(sampled_request(some_tokens(9 + i % 7, i), 12, i));
              requests.back().rid = fmt::format("{} of {} {}", i, count, folder);
              requests.back().adapter = names[i % names.size()];
            }
            for (int round = 0; round < 3; ++round) {  // as it is, recorded, replayed
              const auto sampled = two.generate(requests);
              EXPECT_LT(difference_from(one, requests, sampled), 0.01) << count;
              if (count < 20) continue;
              auto others = requests;
              for (int i = 0; i < count; ++i) others[i].adapter = names[(i + 1) % names.size()];
              EXPECT_GT(difference_from(one, others, sampled), 0.03) << count;
            }
          }
        }
      },
      /*served=*/2);
}

/// Weights over a connection, as a run sends them.
class GpuEngineRanksWeights : public ::testing::TestWithParam<const char*> {};

TEST_P(GpuEngineRanksWeights, EachRankTakesItsSlicesAndTheNextTokensAreTheirs) {
  SLIME_NEEDS_GPUS(2);
  const auto precision = model::Precision::on_gpu("float32");
  on_two_ranks(
      slices_of(GetParam()), precision, /*nccl_alone=*/false, {},
      [&](const Mesh& mesh, LeadingEngine& two) {
        TestEngine one(GetParam(), whole_cache({}), precision);
        const auto whole = model::load_network(golden_models::directory(GetParam()),
                                               model::Precision::of("float32"));
        const Tensor first = whole->weights().flat().clone();
        const auto second = model::make_blank_network(two.network().config(), precision, mesh);
        engine::TwoNetworks networks{.running = &two.network(),
                                     .second = second.get(),
                                     .running_handles = {},
                                     .second_handles = {}};
        std::array<int, 2> ends{};
        ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
        engine::RemoteEngine remote(ends[0], {.weight_piece_bytes = 10'007});
        engine::EngineServer server(two.engine(), ends[1], networks,
                                    {.pass_weights_on = [&](std::string_view piece) {
                                      two.followers().tell(engine::RankOrder::kWeights, piece);
                                    }});
        const std::jthread thread([&] { server.serve(); });
        for (int version = 1; version <= 3; ++version) {
          Tensor flat = whole->weights().flat();
          flat.copy_(first * (1 + 0.05 * version));
          ASSERT_TRUE(remote.update_weights(
              {.version = version, .source = engine::FromNetwork{whole.get()}}));
          one.network().weights().flat().copy_(flat);
          ASSERT_TRUE(one.engine().update_weights({.version = version}));
          auto requests = workload(one.network().config().vocab_size, 12);
          for (int round = 0; round < 3; ++round)
            expect_same(two.generate(requests), LeadingEngine::answers_of(one.engine(), requests));
        }
        const auto whole_checksums = one.engine().check_weights(engine::WeightCheck::kChecksum);
        const auto checksums = two.engine().check_weights(engine::WeightCheck::kChecksum);
        ASSERT_TRUE(checksums) << checksums.error().message;
        EXPECT_EQ(*checksums, *whole_checksums);
        remote.disconnect("the test is over");
      });
}

INSTANTIATE_TEST_SUITE_P(Fixtures, GpuEngineRanksWeights, ::testing::Values("qwen3", "deepseek_v3"),
                         [](const auto& info) { return std::string(info.param); });

TEST(GpuEngineRanksCheckpoint, EachRankReadsItsSlicesOfACheckpoint) {
  SLIME_NEEDS_GPUS(2);
  const auto precision = model::Precision::on_gpu("float32");
  on_two_ranks(
      slices_of("qwen3"), precision, /*nccl_alone=*/false, {},
      [&](const Mesh&, LeadingEngine& two) {
        GenerateRequest request = sampled_request(some_tokens(40), 20, 4);
        request.rid = "as loaded";
        const auto loaded = two.generate({request});
        ASSERT_TRUE(two.engine().run_exclusive([&] { two.network().weights().flat().zero_(); }));
        ASSERT_TRUE(two.engine().update_weights(
            {.version = 5, .source = engine::FromDirectory{golden_models::directory("qwen3")}}));
        request.rid = "read again";
        EXPECT_EQ(two.generate({request})[0].output_ids, loaded[0].output_ids);
      });
}

/// It is there and does nothing: kernels of the other rank wait for it.
TEST(GpuEngineRanksDeaths, ARankThatHangsEndsTheEngineAndIsNamed) {
  SLIME_NEEDS_GPUS(2);
  on_gpus(
      comm::engine_layout(2),
      [&](const Mesh& mesh) {
        const at::NoGradGuard no_grad;
        const int end = connected(mesh);
        if (mesh.rank() == 1) {
          // Reads what it is told, so that the connection has room, until rank 0 is gone.
          std::array<char, 4096> bytes{};
          while (::read(end, bytes.data(), bytes.size()) > 0) {
          }
          return;
        }
        LeadingEngine two(mesh, slices_of("qwen3"), end, {}, /*served=*/0);
        GenerateRequest request = greedy_request(some_tokens(30), 5);
        request.rid = "waits";
        const GenerateUpdate lost = two.generate({request})[0];
        EXPECT_EQ(lost.finish->cause, engine::FinishReason::Cause::kEngineLost);
        EXPECT_THAT(lost.finish->message,
                    HasSubstr("rank 1 of the group has not come within 300 ms"));
      },
      std::chrono::seconds(60), /*leaves_together=*/false,
      engine::with_peer_collectives(std::chrono::milliseconds(300), false));
}

}  // namespace
}  // namespace slime::parity
