/// Updates of the weights without end, under thousands of requests: nothing is lost, run twice,
/// mislabelled, leaked, or served from keys and values of other weights.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "core/random.h"
#include "engine_fixture.h"
#include "hashing_runner.h"

namespace slime {
namespace {

using engine::GenerateRequest;
using engine::GenerateUpdate;
using engine::RunningRequests;
using testing::greedy_request;
using testing::HashingRunner;

/// A model that names the weights which draw: version v draws a token whose label is v. What is not
/// the label depends on everything before the token and on the weights.
struct NamingModel {
  std::function<std::unique_ptr<model::Network>()> make_network;
  std::function<void(model::Network&, WeightVersion)> become;
  std::function<int64_t(TokenId)> label;
  int64_t num_labels = 1;
  engine::MakeStepRunner make_runner = engine::make_step_runner;
  int64_t verify_tokens = 0;
};

/// The first channel of each token's state is large, and in the output layer one row alone reads
/// it, that of the version. The other rows depend on the other channels.
NamingModel real_model() {
  constexpr int64_t kVocab = 64;
  constexpr int64_t kSets = 8;  // of the other weights
  const at::NoGradGuard no_grad;
  const json::object shape = json::parse(R"({
      "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 64,
      "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
      "num_key_value_heads": 1, "head_dim": 16, "intermediate_size": 48, "hidden_act": "silu",
      "tie_word_embeddings": false, "max_position_embeddings": 128, "rope_theta": 10000,
      "rms_norm_eps": 1e-6, "initializer_range": 0.03, "eos_token_id": 2,
      "torch_dtype": "float32"})")
                                 .as_object();
  const model::ModelConfig config = model::parse_model_config(shape, "storm");
  const model::Precision precision = model::Precision::of("float32");
  auto sets = std::make_shared<std::vector<Tensor>>();
  for (int64_t i = 0; i < kSets; ++i) {
    const auto network = model::make_network(config, precision, static_cast<uint64_t>(i + 1));
    Tensor flat = network->weights().flat();
    for (const model::NamedWeight& weight : network->weights().tensors()) {
      Tensor view = model::Weights::view(flat, weight);
      if (weight.name == "model.embed_tokens.weight") view.select(1, 0).fill_(0.3);
      if (weight.name == "lm_head.weight") {
        view.mul_(8);
        view.select(1, 0).zero_();
      }
    }
    sets->push_back(flat.clone());
  }
  NamingModel naming;
  naming.make_network = [=] { return model::make_network(config, precision, 1); };
  naming.become = [=](model::Network& network, WeightVersion version) {
    const at::NoGradGuard no_grad;
    Tensor flat = network.weights().flat();
    flat.copy_((*sets)[static_cast<std::size_t>(version % kSets)]);
    for (const model::NamedWeight& weight : network.weights().tensors()) {
      if (weight.name == "lm_head.weight")
        model::Weights::view(flat, weight)[version % kVocab][0] = 4;
    }
  };
  naming.label = [](TokenId id) { return id; };
  naming.num_labels = kVocab;
  return naming;
}

NamingModel model_with_a_step_in_flight() {
  NamingModel naming;
  naming.make_network = [] {
    return model::load_network(golden_models::directory("qwen3"), model::Precision::of("float32"));
  };
  naming.become = [](model::Network& network, WeightVersion version) {
    const at::NoGradGuard no_grad;
    network.weights().flat()[0].fill_(static_cast<float>(version));
  };
  naming.label = [](TokenId id) { return id / HashingRunner::kRest; };
  naming.num_labels = HashingRunner::kLabels;
  naming.make_runner = [](model::Network& network, const engine::StepRunnerConfig& config) {
    return std::make_unique<HashingRunner>(network, config);
  };
  return naming;
}

/// Prompts that share beginnings, of whole pages and parts of them.
std::vector<TokenId> prompt_of(int64_t number) {
  std::vector<TokenId> tokens;
  const int64_t length = 9 + 5 * (number % 9);
  for (int64_t i = 0; i < length; ++i)
    tokens.push_back(static_cast<TokenId>((i < 22 ? 3 + i * (number % 3 + 1) : number + i) % 64));
  return tokens;
}

constexpr int64_t kPrompts = 27;

class Storm {
 public:
  struct Shape {
    int64_t outstanding = 4096;
    int64_t updates = 1000;
    int64_t longest = 6;  // response
    uint64_t seed = 1;
  };

  Storm(const NamingModel& naming, const Shape& shape)
      : naming_(naming),
        shape_(shape),
        running_(naming.make_network()),
        fresh_(naming.make_network()) {
    naming.become(*running_, 0);
    engine_ = make_engine(*running_);
  }

  /// `how` empty: requests are sampled to their ends before each update.
  void run(std::optional<RunningRequests> how) {
    refills_ = how.has_value();
    fill();
    for (int64_t version = 1; version <= shape_.updates; ++version) {
      if (!how) wait_until_drained();
      update(version, how);
      if (!how) fill();
      ASSERT_FALSE(::testing::Test::HasFailure()) << "version " << version;
    }
    refills_ = false;
    wait_until_drained();
    expect_cold_answers();
    EXPECT_TRUE(*engine_->flush_cache());
    EXPECT_EQ(engine_->load()->num_kv_tokens_used, 0) << "pages leaked";
    EXPECT_EQ(engine_->load()->num_waiting, 0);
    EXPECT_GT(num_compared_, 5);
  }

 private:
  struct Call {
    int64_t number = 0;
    int64_t length = 0;  // of the whole response
    std::vector<TokenId> response;
    std::vector<VersionRun> versions;
    engine::TopLogProbs top;
    bool has_ended = false;
  };

  std::unique_ptr<engine::Engine> make_engine(model::Network& network) {
    const int64_t page = engine::kv_page_bytes(network, at::kFloat);
    return std::make_unique<engine::Engine>(
        network,
        engine::EngineConfig{.max_running_requests = 32,
                             .max_prefill_tokens = 200,
                             .kv_cache_bytes = 160 * page,
                             .num_threads = 1,
                             .context_length = 128,
                             .verify_tokens = naming_.verify_tokens},
        clock_, naming_.make_runner);
  }

  GenerateRequest request_of(const Call& call) const {
    std::vector<TokenId> tokens = prompt_of(call.number % kPrompts);
    tokens.insert(tokens.end(), call.response.begin(), call.response.end());
    GenerateRequest request =
        greedy_request(std::move(tokens), call.length - static_cast<int64_t>(call.response.size()));
    request.top_logprobs_num = call.number % 8 == 0 ? 4 : 0;
    request.rid = std::to_string(num_submitted_++);
    return request;
  }

  void begin_one() {
    auto call = std::make_shared<Call>();
    call->number = num_begun_++;
    call->length = 1 + static_cast<int64_t>(uniform(shape_.seed, 1, call->number) *
                                            static_cast<double>(shape_.longest));
    ++num_open_;
    submit(call);
  }
  void submit(const std::shared_ptr<Call>& call) {
    engine_->submit(request_of(*call), [this, call](GenerateUpdate update) { on(call, update); });
  }
  /// All of them are there before the first of them runs.
  void fill() {
    engine::or_throw(engine_->pause(engine::PauseMode::kInPlace));
    for (int64_t i = 0; i < shape_.outstanding; ++i) begin_one();
    engine_->run_exclusive([] {});  // all are read
    EXPECT_EQ(engine_->load()->num_running + engine_->load()->num_waiting, shape_.outstanding);
    engine::or_throw(engine_->resume());
  }

  /// On the engine's thread.
  void on(const std::shared_ptr<Call>& call, GenerateUpdate& update) {
    EXPECT_FALSE(is_paused_) << "an update between pause and resume";
    EXPECT_FALSE(call->has_ended) << "a request ended twice";
    std::size_t index = 0;
    for (const VersionRun& run : update.versions) {
      for (int64_t i = 0; i < run.num_tokens; ++i)
        EXPECT_EQ(naming_.label(update.output_ids.at(index++)), run.version % naming_.num_labels)
            << "a token of version " << run.version << " is mislabelled";
      if (call->versions.empty() || call->versions.back().version != run.version)
        call->versions.push_back(run);
    }
    EXPECT_EQ(index, update.output_ids.size());
    std::ranges::copy(update.output_ids, std::back_inserter(call->response));
    std::ranges::move(update.output_top, std::back_inserter(call->top));
    if (!update.finish) return;
    if (update.finish->kind == engine::FinishReason::Kind::kAbort) {
      EXPECT_EQ(update.finish->cause, engine::FinishReason::Cause::kRequested)
          << update.finish->message;
      const bool was_asked = update.finish->cause == engine::FinishReason::Cause::kRequested;
      return was_asked ? submit(call) : void();
    }
    call->has_ended = true;
    EXPECT_EQ(static_cast<int64_t>(call->response.size()), call->length);
    keep_for_comparison(call);
    if (refills_) {
      --num_open_;
      return begin_one();
    }
    const std::lock_guard lock(mutex_);
    --num_open_;
    drained_.notify_one();
  }

  void keep_for_comparison(const std::shared_ptr<Call>& call) {
    if (call->versions.size() != 1) return;
    const WeightVersion version = call->versions.front().version;
    const bool is_sampled = version % 50 == 1 || version == shape_.updates;
    auto& kept = by_one_version_[is_sampled ? version : -1];
    if (is_sampled && kept.size() < 12) kept.push_back(call);
  }

  void update(WeightVersion version, std::optional<RunningRequests> how) {
    naming_.become(*fresh_, version);
    const auto draw = static_cast<int64_t>(uniform(shape_.seed, 2, version) * 40);
    const bool pauses_before = draw == 0, stays_paused = draw == 1;
    if (pauses_before) engine::or_throw(engine_->pause(engine::PauseMode::kInPlace));
    engine::or_throw(engine_->update_weights({.version = version,
                                              .source = engine::FromNetwork{fresh_.get()},
                                              .running = how.value_or(RunningRequests::kRecompute),
                                              .stays_paused = stays_paused}));
    // What changes behind the call is nothing to the engine.
    naming_.become(*fresh_, version + 7);
    if (pauses_before || stays_paused) {
      is_paused_ = true;
      const int64_t steps = engine_->load()->steps_done;
      engine_->run_exclusive([] {});
      engine_->run_exclusive([] {});
      EXPECT_EQ(engine_->load()->steps_done, steps) << "a step between pause and resume";
      EXPECT_EQ(engine_->load()->num_running + engine_->load()->num_waiting, num_open_)
          << "a request was lost in the pause";
      is_paused_ = false;
      engine::or_throw(engine_->resume());
    }
    wait_for_steps(draw % 3 == 2 ? 2 : 1);
  }

  /// With these weights, unless nothing is left to do.
  void wait_for_steps(int64_t count) {
    const int64_t goal = engine_->load()->steps_done + count;
    while (engine_->load()->steps_done < goal && num_open_ > 0) std::this_thread::yield();
  }

  void wait_until_drained() {
    std::unique_lock lock(mutex_);
    const bool came =
        drained_.wait_for(lock, std::chrono::seconds(60), [&] { return num_open_ == 0; });
    ASSERT_TRUE(came) << num_open_ << " requests never end";
  }

  void expect_cold_answers() {
    for (const auto& [version, calls] : by_one_version_) {
      if (version < 0) continue;
      naming_.become(*fresh_, version);
      const auto cold = make_engine(*fresh_);
      testing::Responses responses;
      for (const auto& call : calls) {
        Call again;
        again.number = call->number;
        again.length = call->length;
        GenerateRequest request = request_of(again);
        const std::string rid = request.rid;
        cold->submit(std::move(request), responses.sink());
        const GenerateUpdate answer = responses.wait(rid);
        EXPECT_EQ(call->response, answer.output_ids) << "version " << version;
        ASSERT_EQ(call->top.size(), answer.output_top.size());
        for (std::size_t i = 0; i < call->top.size(); ++i) {
          for (std::size_t rank = 0; rank < call->top[i].size(); ++rank) {
            EXPECT_EQ(call->top[i][rank].second, answer.output_top[i][rank].second)
                << "version " << version << ", token " << i;
            EXPECT_NEAR(call->top[i][rank].first, answer.output_top[i][rank].first, 1e-4);
          }
        }
        ++num_compared_;
      }
    }
  }

  const NamingModel& naming_;
  const Shape shape_;
  const SystemClock clock_;
  std::unique_ptr<model::Network> running_, fresh_;
  std::atomic<bool> refills_ = false, is_paused_ = false;
  std::atomic<int64_t> num_open_ = 0;
  std::atomic<int64_t> num_begun_ = 0;
  mutable std::atomic<int64_t> num_submitted_ = 0;
  std::map<WeightVersion, std::vector<std::shared_ptr<Call>>> by_one_version_;
  int64_t num_compared_ = 0;
  std::mutex mutex_;
  std::condition_variable drained_;
  std::unique_ptr<engine::Engine> engine_;  // last: its thread uses all of this
};

TEST(UpdateStorm, RequestsThatKeepWhatTheyHaveAreNeitherLostNorMislabelled) {
  Storm(real_model(), {}).run(RunningRequests::kKeep);
}

TEST(UpdateStorm, RequestsThatAreComputedAgainAreNeitherLostNorMislabelled) {
  Storm(real_model(), {}).run(RunningRequests::kRecompute);
}

TEST(UpdateStorm, RequestsThatWaitBehindTheOthersAreNeitherLostNorMislabelled) {
  Storm(real_model(), {.outstanding = 128, .updates = 100}).run(RunningRequests::kDrop);
}

TEST(UpdateStorm, InterruptedRequestsGoOnFromTheirTokens) {
  Storm(real_model(), {.updates = 50}).run(RunningRequests::kAbort);
  Storm(real_model(), {.outstanding = 128, .updates = 950}).run(RunningRequests::kAbort);
}

TEST(UpdateStorm, DrainedEnginesChangeTheirWeightsUnderNobody) {
  Storm(real_model(), {.updates = 5, .longest = 2}).run(std::nullopt);
  Storm(real_model(), {.outstanding = 24, .updates = 995, .longest = 2}).run(std::nullopt);
}

class UpdateStormInFlight : public ::testing::TestWithParam<RunningRequests> {};

TEST_P(UpdateStormInFlight, NothingIsLostOrMislabelled) {
  const int64_t before = HashingRunner::changed_in_flight;
  const NamingModel naming = model_with_a_step_in_flight();
  Storm(naming, {.updates = 40}).run(GetParam());
  Storm(naming, {.outstanding = 100, .updates = 960, .longest = 30}).run(GetParam());
  const int64_t in_flight = HashingRunner::changed_in_flight - before;
  if (GetParam() == RunningRequests::kKeep) {
    EXPECT_GT(in_flight, 500) << "the update waited for a step";
  } else {
    EXPECT_EQ(in_flight, 0) << "what requests have sampled has to be known";
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, UpdateStormInFlight,
                         ::testing::Values(RunningRequests::kKeep, RunningRequests::kRecompute,
                                           RunningRequests::kAbort),
                         [](const auto& info) {
                           if (info.param == RunningRequests::kKeep) return "Keep";
                           return info.param == RunningRequests::kAbort ? "Abort" : "Recompute";
                         });

/// Fast steps draw other tokens now and then, and write keys that no prompt may meet. Tokens that old weights drew
/// ahead are verified by the new ones.
TEST_P(UpdateStormInFlight, NothingIsMislabelledWhereTokensAreVerified) {
  for (const int64_t tokens : {1, 5}) {
    NamingModel naming = model_with_a_step_in_flight();
    naming.verify_tokens = tokens;
    const int64_t before = HashingRunner::verified;
    Storm(naming, {.outstanding = 100, .updates = 300, .longest = 30}).run(GetParam());
    EXPECT_GT(HashingRunner::verified - before, 300);
  }
}

/// Versions are numbers that callers choose; weights may come back under the number of others.
TEST(UpdateStorm, AnOldNumberForNewWeightsPoisonsNoPrefix) {
  const NamingModel naming = model_with_a_step_in_flight();
  SystemClock clock;
  const auto network = naming.make_network(), fresh = naming.make_network();
  naming.become(*network, 1);
  engine::Engine engine(*network, {.kv_cache_bytes = 8 << 20}, clock, naming.make_runner);
  testing::Responses responses;
  GenerateRequest running = greedy_request(prompt_of(8), 150);
  running.rid = "running";
  engine.submit(running, responses.sink());
  responses.wait_for_tokens("running", 3);
  naming.become(*fresh, 2);
  engine::or_throw(engine.update_weights({.version = 0,  // the number that the first weights have
                                          .source = engine::FromNetwork{fresh.get()},
                                          .running = RunningRequests::kKeep}));
  responses.wait("running");  // its pages would go to the prefix tree now
  GenerateRequest request = greedy_request(prompt_of(8), 5);
  request.rid = "fresh";
  engine.submit(request, responses.sink());
  engine::Engine cold(*fresh, {.kv_cache_bytes = 8 << 20}, clock, naming.make_runner);
  testing::Responses cold_responses;
  cold.submit(request, cold_responses.sink());
  EXPECT_EQ(responses.wait("fresh").output_ids, cold_responses.wait("fresh").output_ids);
}

}  // namespace
}  // namespace slime
