#include "engine/chat/template_traits.h"

#include <gtest/gtest.h>

#include "engine/chat/templates_for_tests.h"
#include "text/published_tokenizers_for_tests.h"

namespace slime::engine {
namespace {

TemplateTraits traits_of(const char* source) { return probe_template(render_fn(source)); }

TEST(TemplateTraits, ATemplateThatPrintsAnyRoleKnowsNoDeveloper) {
  const TemplateTraits traits = traits_of(kChatMl);
  EXPECT_FALSE(traits.knows_developer);
  EXPECT_TRUE(traits.takes_system);
  EXPECT_TRUE(traits.takes_later_system);
  EXPECT_FALSE(traits.takes_parts);
  EXPECT_TRUE(traits.takes_text);
}

TEST(TemplateTraits, ArgumentsThatAreWrittenAsTheyAreGoInAsText) {
  const TemplateTraits traits = traits_of(kTextOrObjectArguments);
  EXPECT_TRUE(traits.takes_text_arguments);
  EXPECT_TRUE(traits.takes_object_arguments);
}

TEST(TemplateTraits, ArgumentsThatAreWrittenAsJsonAgainGoInAsObjects) {
  const TemplateTraits traits = traits_of(kJsonArguments);
  EXPECT_FALSE(traits.takes_text_arguments);
  EXPECT_TRUE(traits.takes_object_arguments);
}

TEST(TemplateTraits, ArgumentsThatAreWrittenKeyByKeyGoInAsObjects) {
  const TemplateTraits traits = traits_of(kKeyByKeyArguments);
  EXPECT_FALSE(traits.takes_text_arguments);
  EXPECT_TRUE(traits.takes_object_arguments);
}

TEST(TemplateTraits, ATemplateThatAsksForNullContentGetsIt) {
  const TemplateTraits traits = traits_of(kCallsWithoutContent);
  EXPECT_TRUE(traits.wants_null_beside_calls);
  EXPECT_TRUE(traits.loses_calls_beside_text);
  EXPECT_TRUE(traits.takes_text_arguments);
  EXPECT_FALSE(traits.takes_object_arguments);
}

TEST(TemplateTraits, OneThatRefusesLongIdsGetsShortOnes) {
  const TemplateTraits traits = traits_of(kShortIds);
  EXPECT_EQ(traits.call_ids, CallIdForm::kNineCharacters);
  EXPECT_TRUE(traits.takes_object_arguments);
  EXPECT_EQ(traits_of(kJsonArguments).call_ids, CallIdForm::kAny);
}

TEST(TemplateTraits, SystemMessagesAreAsTheTemplateTakesThem) {
  EXPECT_FALSE(traits_of(kNoSystem).takes_system);
  const TemplateTraits first_alone = traits_of(kSystemFirst);
  EXPECT_TRUE(first_alone.takes_system);
  EXPECT_FALSE(first_alone.takes_later_system);
}

TEST(TemplateTraits, PartsAreKeptWhereTheTemplateWritesThem) {
  const TemplateTraits both = traits_of(kTextOrParts);
  EXPECT_TRUE(both.takes_parts);
  EXPECT_TRUE(both.takes_text);
  const TemplateTraits parts_alone = traits_of(kPartsAlone);
  EXPECT_TRUE(parts_alone.takes_parts);
  EXPECT_FALSE(parts_alone.takes_text);
}

TEST(TemplateTraits, ATemplateThatTreatsDevelopersApartKnowsThem) {
  EXPECT_TRUE(traits_of(kDeveloper).knows_developer);
}

TEST(TemplateTraits, OneThatFailsOnEverythingHasSomeTraits) {
  const TemplateTraits traits = traits_of("{{ raise_exception('no') }}");
  EXPECT_TRUE(traits.takes_text);
  EXPECT_FALSE(traits.wants_null_beside_calls);
  EXPECT_FALSE(traits.loses_calls_beside_text);
}

TemplateTraits traits_of_published(const char* name) {
  return probe_template(render_fn(text::ChatTemplate::load(text::published_tokenizer(name))));
}

TEST(PublishedTemplates, Qwen3TakesArgumentsAsTheyWereSampled) {
  SLIME_NEEDS_PUBLISHED_TOKENIZER("qwen3");
  const TemplateTraits traits = traits_of_published("qwen3");
  EXPECT_TRUE(traits.takes_text_arguments);
  EXPECT_TRUE(traits.takes_object_arguments);
  EXPECT_FALSE(traits.wants_null_beside_calls);
  EXPECT_FALSE(traits.loses_calls_beside_text);
  EXPECT_FALSE(traits.knows_developer);
  EXPECT_TRUE(traits.takes_later_system);
  EXPECT_FALSE(traits.takes_parts);
}

TEST(PublishedTemplates, DeepSeekV3WantsNullBesideCallsAndTextArguments) {
  SLIME_NEEDS_PUBLISHED_TOKENIZER("deepseek_v3");
  const TemplateTraits traits = traits_of_published("deepseek_v3");
  EXPECT_TRUE(traits.takes_text_arguments);
  EXPECT_FALSE(traits.takes_object_arguments);
  EXPECT_TRUE(traits.wants_null_beside_calls);
  EXPECT_TRUE(traits.loses_calls_beside_text);
  EXPECT_FALSE(traits.knows_developer);
}

}  // namespace
}  // namespace slime::engine
