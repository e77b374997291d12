#include "engine/end_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/config.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::unique_ptr<text::Tokenizer> tokenizer(std::string_view config) {
  return text::Tokenizer::from_json(
      R"({"version":"1.0","added_tokens":[{"id":2,"content":"<end>","special":true},
         {"id":3,"content":"<turn>","special":true},{"id":9,"content":"<far>","special":true}],
         "normalizer":null,"pre_tokenizer":null,"post_processor":null,"decoder":null,
         "model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}})",
      config);
}

TEST(EndTokens, AreThoseOfTheModelAndTheTokenizersOwn) {
  model::ModelConfig model;
  model.vocab_size = 4;
  model.eos_token_ids = {2};
  EndTokens end = end_tokens(model, tokenizer(R"({"eos_token":"<turn>"})").get());
  EXPECT_THAT(end.ids, ElementsAre(2, 3));
  EXPECT_THAT(end.notes, ElementsAre(HasSubstr("responses end at <turn> (3) too")));
  end = end_tokens(model, tokenizer(R"({"eos_token":"<end>"})").get());
  EXPECT_THAT(end.ids, ElementsAre(2));
  EXPECT_THAT(end.notes, IsEmpty());
  EXPECT_THAT(end_tokens(model, tokenizer("{}").get()).ids, ElementsAre(2));
  EXPECT_THAT(end_tokens(model, nullptr).ids, ElementsAre(2));
}

TEST(EndTokens, OfTheTokenizerThatTheEmbeddingDoesNotHaveAreTold) {
  model::ModelConfig model;
  model.vocab_size = 4;
  const EndTokens end = end_tokens(model, tokenizer(R"({"eos_token":"<far>"})").get());
  EXPECT_THAT(end.ids, IsEmpty());
  EXPECT_THAT(end.notes, ElementsAre(HasSubstr("<far> is 9; the model has 4 ids")));
}

TEST(EndTokens, GivenAsTextsAreLookedUp) {
  const json::value file = parse_json(
      R"({"model_type":"llama","vocab_size":4,"hidden_size":8,"intermediate_size":8,
          "num_hidden_layers":1,"num_attention_heads":2,"max_position_embeddings":64,
          "eos_token_id":["<turn>","1","<none>"]})",
      "test");
  const model::ModelConfig model = model::parse_model_config(file.as_object(), "config.json");
  EXPECT_THAT(model.eos_token_ids, ElementsAre(1));
  const EndTokens end = end_tokens(model, tokenizer("{}").get());
  EXPECT_THAT(end.ids, ElementsAre(1, 3));
  EXPECT_THAT(end.notes, ElementsAre(HasSubstr("\"<none>\" is no token of the tokenizer")));
  EXPECT_THAT(end_tokens(model, nullptr).notes.size(), 2);
}

}  // namespace
}  // namespace slime::engine
