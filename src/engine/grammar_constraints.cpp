#include "engine/grammar_constraints.h"

#include <fmt/format.h>

#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "engine/grammar_constraint.h"
#include "engine/sampling_params.h"
#include "engine/token_list_constraint.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::engine {
namespace {

using Cause = FinishReason::Cause;

constexpr std::string_view kObjectSchema = R"({"type":"object"})";
constexpr std::string_view kSglangAnyJson = "$$ANY$$";  // SGLang's word

text::GrammarSpec spec_of(const SamplingParams& sampling, bool disables_whitespace) {
  using Kind = text::GrammarKind;
  text::GrammarSpec spec;
  if (disables_whitespace) spec.max_whitespace = 0;
  if (sampling.json_schema == kObjectSchema) {
    spec.kind = Kind::kJsonObject;
  } else if (!sampling.json_schema.empty()) {
    spec.kind = Kind::kJsonSchema;
    spec.source = sampling.json_schema == kSglangAnyJson ? "{}" : sampling.json_schema;
  } else if (!sampling.regex.empty()) {
    spec.kind = Kind::kRegex;
    spec.source = sampling.regex;
  } else if (!sampling.ebnf.empty()) {
    spec.kind = Kind::kEbnf;
    spec.source = sampling.ebnf;
  } else {
    spec.kind = Kind::kStructuralTag;
    spec.source = sampling.structural_tag;
  }
  return spec;
}

FinishReason refusal_of_grammar(const text::GrammarError& error, const std::string& field) {
  std::string message = fmt::format("{}: {}", field, error.message);
  switch (error.kind) {
    case text::GrammarFailure::kRefused:
    case text::GrammarFailure::kTooSlow:
      return aborted(Cause::kBadRequest, std::move(message));
    case text::GrammarFailure::kBusy:
      return aborted(Cause::kQueueFull, std::move(message));
    case text::GrammarFailure::kShutDown:
      break;
  }
  return aborted(Cause::kShuttingDown, std::move(message));
}

class GrammarConstraints final : public ConstraintSource {
 public:
  GrammarConstraints(const text::Tokenizer* tokenizer, int64_t vocab_size,
                     std::span<const TokenId> eos_ids, const GrammarConfig& config)
      : tokenizer_(tokenizer),
        vocab_size_(vocab_size),
        eos_ids_(eos_ids.begin(), eos_ids.end()),
        config_(config) {}

  ~GrammarConstraints() override {
    if (opening_.joinable()) opening_.join();
  }

  bool constrains(const GenerateRequest& request) const override {
    // Several grammars are refused at admission.
    return grammars_of(request.sampling).size() == 1 || request.sampling.has_token_lists();
  }

  void make(const GenerateRequest& request, Made made) override {
    std::optional<TokenLists> lists;
    if (request.sampling.has_token_lists()) {
      // Admission comes later, and tells the same.
      if (const auto problems = problems_of(request.sampling, vocab_size_); !problems.empty())
        return made(tl::make_unexpected(aborted(Cause::kBadRequest, problems.front())));
      try {
        lists = token_lists_of(request, eos_ids_, tokenizer_);
      } catch (const ConfigError& error) {
        return made(tl::make_unexpected(aborted(Cause::kBadRequest, error.what())));
      }
    }
    if (!request.sampling.has_grammar())
      return made(std::make_unique<TokenListConstraint>(std::move(*lists), vocab_size_, nullptr));
    const std::string field = request.grammar_field.empty()
                                  ? std::string(grammars_of(request.sampling).front())
                                  : request.grammar_field;
    if (!config_.takes_grammars || tokenizer_ == nullptr) {
      return made(tl::make_unexpected(
          aborted(Cause::kBadRequest,
                  fmt::format("{} asks for constrained decoding, which this engine does not do{}",
                              field, tokenizer_ == nullptr ? ": it has no tokenizer" : ""))));
    }
    compile(spec_of(request.sampling, config_.disables_whitespace),
            [this, field, lists = std::move(lists), thoughts = request.thoughts,
             made = std::move(made)](const text::GrammarResult& grammar) {
              if (!grammar)
                return made(tl::make_unexpected(refusal_of_grammar(grammar.error(), field)));
              std::unique_ptr<TokenConstraint> constraint = std::make_unique<GrammarConstraint>(
                  *grammar, field, thoughts, eos_ids_, *tokenizer_, config_.mask_limit, masks_);
              if (lists) {
                constraint = std::make_unique<TokenListConstraint>(*lists, vocab_size_,
                                                                   std::move(constraint));
              }
              made(std::move(constraint));
            });
  }

  void clear_cache() override {
    const std::lock_guard lock(mutex_);
    if (compiler_) compiler_->clear_cache();
  }

  GrammarLoad load() const override {
    GrammarLoad load{.num_masks = masks_->num_masks,
                     .mask_seconds = static_cast<double>(masks_->nanoseconds) * 1e-9};
    const std::lock_guard lock(mutex_);
    load.num_waiting = static_cast<int64_t>(waiting_.size());
    if (!compiler_) return load;
    const text::GrammarCompilerCounts counts = compiler_->counts();
    load.num_compiled = counts.compiled;
    load.num_refused = counts.refused;
    load.num_too_slow = counts.too_slow;
    load.num_busy = counts.busy;
    load.num_cache_hits = counts.cache_hits;
    load.num_waiting += counts.waiting;
    load.num_running = counts.running;
    load.num_cached = counts.cached;
    load.cache_bytes = static_cast<int64_t>(counts.cache_bytes);
    return load;
  }

 private:
  /// Calls wait here until the compiler is there, and no thread waits for it.
  void compile(text::GrammarSpec spec, text::GrammarCompiler::Done done) {
    {
      const std::lock_guard lock(mutex_);
      if (compiler_ == nullptr) {
        waiting_.emplace_back(std::move(spec), std::move(done));
        if (!opening_.joinable()) opening_ = std::thread([this] { open(); });
        return;
      }
    }
    compiler_->compile(spec, std::move(done));
  }

  void open() {
    auto compiler = std::make_unique<text::GrammarCompiler>(
        std::make_shared<const text::GrammarVocabulary>(*tokenizer_, vocab_size_, eos_ids_),
        config_.compiler);
    std::vector<std::pair<text::GrammarSpec, text::GrammarCompiler::Done>> waiting;
    {
      const std::lock_guard lock(mutex_);
      compiler_ = std::move(compiler);
      waiting.swap(waiting_);
    }
    for (auto& [spec, done] : waiting) compiler_->compile(spec, std::move(done));
  }

  const text::Tokenizer* tokenizer_;
  const int64_t vocab_size_;
  const std::vector<TokenId> eos_ids_;
  const GrammarConfig config_;
  const std::shared_ptr<MaskCounts> masks_ = std::make_shared<MaskCounts>();
  mutable std::mutex mutex_;
  // Guarded by mutex_; the compiler, once it is there, stays.
  std::vector<std::pair<text::GrammarSpec, text::GrammarCompiler::Done>> waiting_;
  std::unique_ptr<text::GrammarCompiler> compiler_;
  std::thread opening_;
};

}  // namespace

std::shared_ptr<ConstraintSource> make_grammar_constraints(const text::Tokenizer* tokenizer,
                                                           int64_t vocab_size,
                                                           std::span<const TokenId> eos_ids,
                                                           const GrammarConfig& config) {
  return std::make_shared<GrammarConstraints>(tokenizer, vocab_size, eos_ids, config);
}

}  // namespace slime::engine
