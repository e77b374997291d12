#include "engine/http/anthropic/anthropic_blocks.h"

#include <fmt/format.h>

#include "engine/chat/tools.h"

namespace slime::engine {
namespace {

void append_line(std::string& text, std::string_view line) {
  if (line.empty()) return;
  if (!text.empty()) text += '\n';
  text += line;
}

/// Text of a list of blocks, by line.
std::string texts_by_line(const FieldReader& fields, std::string_view name) {
  std::string text;
  for (const FieldReader& block : fields.list(name))
    append_line(text, block_text(block).value_or(""));
  return text;
}

/// Title, context and text of a document whose source is text.
std::optional<std::string> document_text(const FieldReader& block) {
  std::string text;
  append_line(text, block.text("title").value_or(""));
  append_line(text, block.text("context").value_or(""));
  const auto source = block.required().fields("source");
  if (!source) return std::nullopt;
  const std::string type = source->required().text("type", kMostToolNameBytes).value_or("");
  if (type == "text") {
    append_line(text, source->required().text("data").value_or(""));
  } else if (type == "content") {
    const json::value* content = source->find("content");
    const bool is_text = content != nullptr && content->is_string();
    append_line(text, is_text ? std::string_view(content->get_string())
                              : std::string_view(texts_by_line(*source, "content")));
  } else {
    source->note("type", fmt::format("is \"{}\": this engine reads documents of text alone", type));
    return std::nullopt;
  }
  return text;
}

std::string search_result_text(const FieldReader& block) {
  std::string text;
  append_line(text, block.text("title").value_or(""));
  append_line(text, block.text("source").value_or(""));
  append_line(text, texts_by_line(block, "content"));
  return text;
}

}  // namespace

std::string block_type(const FieldReader& block) {
  return block.text("type", kMostToolNameBytes).value_or("text");
}

std::optional<std::string> block_text(const FieldReader& block) {
  const std::string type = block_type(block);
  if (type == "text") return block.required().text("text");
  if (type == "document") return document_text(block);
  if (type == "search_result") return search_result_text(block);
  if (type == "image") {
    block.note("type", "is \"image\": this engine serves text models");
  } else {
    block.note("type", fmt::format("is \"{}\", which does not stand here", type));
  }
  return std::nullopt;
}

json::value read_block_content(const FieldReader& fields, std::string_view name) {
  const json::value* content = fields.find(name);
  if (content == nullptr) return nullptr;
  if (content->is_string()) return *content;
  json::array parts;
  for (const FieldReader& block : fields.list(name)) {
    if (auto text = block_text(block))
      parts.push_back(json::object{{"type", "text"}, {"text", *std::move(text)}});
  }
  return parts;
}

}  // namespace slime::engine
