#include "engine/end_tokens.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "model/config.h"
#include "text/tokenizer/tokenizer.h"

namespace slime::engine {

EndTokens end_tokens(const model::ModelConfig& model, const text::Tokenizer* tokenizer) {
  EndTokens end{.ids = model.eos_token_ids, .notes = {}};
  const auto has = [&end](TokenId id) { return std::ranges::find(end.ids, id) != end.ids.end(); };
  for (const std::string& spelling : model.eos_spellings) {
    const auto id = tokenizer == nullptr ? std::nullopt : tokenizer->id_of(spelling);
    if (!id) {
      end.notes.push_back(
          fmt::format("eos_token_id \"{}\" is no token{}: nothing ends there", spelling,
                      tokenizer == nullptr ? " without a tokenizer" : " of the tokenizer"));
    } else if (!has(*id)) {
      end.ids.push_back(*id);
    }
  }
  if (tokenizer == nullptr) return end;
  const auto& names = tokenizer->special_tokens();
  const auto name = names.find("eos_token");
  const auto id = name == names.end() ? std::nullopt : tokenizer->id_of(name->second);
  if (!id || has(*id)) return end;
  if (*id >= model.vocab_size) {
    end.notes.push_back(fmt::format("the tokenizer's eos_token {} is {}; the model has {} ids",
                                    name->second, *id, model.vocab_size));
    return end;
  }
  end.notes.push_back(
      fmt::format("responses end at {} ({}) too, the tokenizer's eos_token; config.json and "
                  "generation_config.json have {}",
                  name->second, *id,
                  end.ids.empty() ? "no end token" : fmt::format("{}", fmt::join(end.ids, ", "))));
  end.ids.push_back(*id);
  return end;
}

}  // namespace slime::engine
