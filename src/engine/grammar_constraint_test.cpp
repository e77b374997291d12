#include "engine/grammar_constraint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <memory>
#include <ranges>
#include <string>
#include <vector>

#include "engine/grammar_constraints.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::engine {
namespace {

using testing::HasSubstr;
using Allowed = TokenConstraint::Allowed;

constexpr TokenId kEndToken = 127, kOpenMark = 128, kCloseMark = 129, kTailToken = 130;
constexpr int64_t kWalkVocab = 131;

/// A token for each printable character, for the end, for marks of thoughts (special ones where it is
/// asked for), and one that ends a mark and goes on.
std::unique_ptr<text::Tokenizer> make_thinking_tokenizer(bool has_special_marks,
                                                         bool has_marks = true) {
  json::object vocab;
  for (int code = 33; code < 127; ++code) vocab[std::string(1, static_cast<char>(code))] = code;
  vocab["\xc4\xa0"] = 32;  // how byte-level BPE spells a space
  vocab["k>ye"] = kTailToken;
  json::array added;
  const auto add = [&](TokenId id, const char* text, bool is_special) {
    added.push_back(json::object{{"id", id},
                                 {"content", text},
                                 {"single_word", false},
                                 {"lstrip", false},
                                 {"rstrip", false},
                                 {"normalized", false},
                                 {"special", is_special}});
  };
  add(kEndToken, "<|im_end|>", true);
  add(kOpenMark, has_marks ? "<think>" : "<a>", has_special_marks);
  add(kCloseMark, has_marks ? "</think>" : "<b>", has_special_marks);
  const json::object byte_level{{"type", "ByteLevel"},
                                {"add_prefix_space", false},
                                {"trim_offsets", true},
                                {"use_regex", true}};
  const json::value tokenizer = {
      {"version", "1.0"},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level},
      {"post_processor", nullptr},
      {"decoder", byte_level},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array{}}}}};
  return text::Tokenizer::from_json(json_text(tokenizer), "");
}

/// The constraint of a request, and its walk.
struct ConstraintWalk {
  explicit ConstraintWalk(const FreeThoughts& thoughts, bool has_special_marks = false,
                          bool has_marks = true, GrammarConfig config = {})
      : tokenizer(make_thinking_tokenizer(has_special_marks, has_marks)) {
    GenerateRequest request;
    request.sampling.regex = "yes|no";
    request.thoughts = thoughts;
    const std::vector<TokenId> ends{kEndToken};
    source = make_grammar_constraints(tokenizer.get(), kWalkVocab, ends, config);
    constraint = made(request).value();
  }
  ConstraintSource::MadeConstraint made(const GenerateRequest& request) const {
    std::promise<ConstraintSource::MadeConstraint> promise;
    source->make(request, [&](auto result) { promise.set_value(std::move(result)); });
    return promise.get_future().get();
  }
  /// What may come next: characters, E for the end, O for the opening mark, * for anything
  /// but the end.
  std::string next() {
    std::vector<uint32_t> words(mask_words(kWalkVocab), 0);
    const Allowed allowed = constraint->allow(words);
    EXPECT_NE(allowed, Allowed::kAny);
    if (allowed == Allowed::kNone) return "";
    std::string out;
    const auto is_open = [&](TokenId id) { return is_allowed(words, id) == (id != kEndToken); };
    if (std::ranges::all_of(std::views::iota(TokenId{0}, TokenId{kWalkVocab}), is_open)) return "*";
    for (TokenId id = 0; id < kWalkVocab; ++id) {
      if (!is_allowed(words, id)) continue;
      out += id == kEndToken ? 'E' : id == kOpenMark ? 'O' : static_cast<char>(id);
    }
    return out;
  }
  void take(std::string_view characters) {
    for (const char character : characters) constraint->accept(character);
  }

  std::unique_ptr<text::Tokenizer> tokenizer;
  std::shared_ptr<ConstraintSource> source;
  std::unique_ptr<TokenConstraint> constraint;
};

const FreeThoughts kOpened{.closing = "</think>", .are_open = true};
const FreeThoughts kMayOpen{.opening = "<think>", .closing = "</think>"};

TEST(GrammarConstraint, BindsFromTheFirstTokenToTheEnd) {
  ConstraintWalk walk({});
  EXPECT_EQ(walk.next(), "ny");
  walk.take("ye");
  EXPECT_EQ(walk.next(), "s");
  walk.take("s");
  EXPECT_EQ(walk.next(), "E");
  EXPECT_FALSE(walk.constraint->is_over());
  walk.constraint->accept(kEndToken);
  EXPECT_TRUE(walk.constraint->is_over());
}

TEST(GrammarConstraint, ThoughtsAreFreeUpToTheirMark) {
  ConstraintWalk walk(kOpened);
  EXPECT_EQ(walk.next(), "*");
  walk.take("Hm. </thin</thin");
  EXPECT_EQ(walk.next(), "*");
  EXPECT_TRUE(walk.constraint->is_quick());
  walk.take("k>");
  EXPECT_FALSE(walk.constraint->is_quick());
  EXPECT_EQ(walk.next(), "ny");
}

TEST(GrammarConstraint, TextBehindTheMarkInItsLastTokenIsOfTheGrammar) {
  ConstraintWalk walk(kOpened);
  walk.take("</thin");
  walk.constraint->accept(kTailToken);  // "k>ye"
  EXPECT_EQ(walk.next(), "s");
}

TEST(GrammarConstraint, AMarkThatIsASpecialTokenIsNotSpelled) {
  ConstraintWalk walk(kOpened, /*has_special_marks=*/true);
  walk.take("</think>no");
  EXPECT_EQ(walk.next(), "*");
  walk.constraint->accept(kCloseMark);
  EXPECT_EQ(walk.next(), "ny");
}

TEST(GrammarConstraint, AModelMayThinkFirstWhereItsVocabularyHasTheMark) {
  ConstraintWalk thinks(kMayOpen);
  EXPECT_EQ(thinks.next(), "nyO");
  thinks.constraint->accept(kOpenMark);
  EXPECT_EQ(thinks.next(), "*");
  thinks.constraint->accept(kCloseMark);
  EXPECT_EQ(thinks.next(), "ny");
  ConstraintWalk answers(kMayOpen);
  answers.take("n");
  EXPECT_EQ(answers.next(), "o");
  EXPECT_EQ(ConstraintWalk(kMayOpen, false, /*has_marks=*/false).next(), "ny");
}

TEST(GrammarConstraint, ATokenOutsideOfTheGrammarIsTold) {
  ConstraintWalk walk({});
  walk.take("x");  // of a response that was begun elsewhere
  EXPECT_EQ(walk.next(), "");
  EXPECT_THAT(walk.constraint->problem(), HasSubstr("regex: the response so far does not follow"));
  EXPECT_FALSE(walk.constraint->is_over());
}

TEST(GrammarConstraints, ASourceThatIsWrongIsABadRequestThatNamesTheClientsField) {
  const ConstraintWalk walk({});
  GenerateRequest request;
  request.sampling.regex = "(";
  request.grammar_field = "guided_regex";
  const auto made = walk.made(request);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().cause, FinishReason::Cause::kBadRequest);
  EXPECT_THAT(made.error().message, HasSubstr("guided_regex: "));
}

TEST(GrammarConstraints, TakeEachKindAndNoRequestWithoutOne) {
  const ConstraintWalk walk({});
  EXPECT_FALSE(walk.source->constrains({}));
  const std::pair<std::string SamplingParams::*, const char*> sources[] = {
      {&SamplingParams::json_schema, R"({"type":"object"})"},
      {&SamplingParams::json_schema, "$$ANY$$"},
      {&SamplingParams::json_schema, R"({"enum": [1]})"},
      {&SamplingParams::ebnf, "root ::= \"a\""},
      {&SamplingParams::structural_tag,
       R"({"type": "structural_tag", "format": {"type": "const_string", "value": "a"}})"}};
  for (const auto& [kind, source] : sources) {
    GenerateRequest request;
    request.sampling.*kind = source;
    EXPECT_TRUE(walk.source->constrains(request));
    EXPECT_TRUE(walk.made(request)) << source;
  }
}

TEST(GrammarConstraints, ListsOfTokensBindNextToAGrammar) {
  const ConstraintWalk walk({});
  GenerateRequest request;
  request.sampling.regex = "yes|no";
  request.sampling.allowed_token_ids = {'n', 'o', kEndToken};
  EXPECT_TRUE(walk.source->constrains(request));
  const auto constraint = walk.made(request).value();
  std::vector<uint32_t> words(mask_words(kWalkVocab), 0);
  EXPECT_EQ(constraint->allow(words), Allowed::kSome);
  EXPECT_TRUE(is_allowed(words, 'n'));
  EXPECT_FALSE(is_allowed(words, 'y'));
  EXPECT_EQ(walk.source->load().num_masks, 1);
  EXPECT_EQ(walk.source->load().num_compiled, 1);
}

TEST(GrammarConstraints, WithoutATokenizerListsOfIdsBindAndNothingElse) {
  const auto source = make_grammar_constraints(nullptr, 10, std::vector<TokenId>{9}, {});
  const auto cause_of = [&](const GenerateRequest& request) {
    std::promise<ConstraintSource::MadeConstraint> promise;
    source->make(request, [&](auto result) { promise.set_value(std::move(result)); });
    const auto made = promise.get_future().get();
    return made ? std::string() : made.error().message;
  };
  GenerateRequest ids, words, grammar;
  ids.sampling.allowed_token_ids = {1};
  words.sampling.bad_words = {"a"};
  grammar.sampling.regex = "a";
  EXPECT_EQ(cause_of(ids), "");
  EXPECT_THAT(cause_of(words), HasSubstr("bad_words needs a tokenizer"));
  EXPECT_THAT(cause_of(grammar), HasSubstr("regex asks for constrained decoding"));
}

}  // namespace
}  // namespace slime::engine
