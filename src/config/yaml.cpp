#include "config/yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <charconv>

#include "core/error.h"

namespace slime::config {
namespace {

constexpr int kDeepest = 64;
constexpr std::size_t kMostNodes = 1'000'000;
constexpr std::size_t kNodeBytes = 64;  // a longer text counts as several nodes

template <typename T>
bool read_whole(const std::string& text, T& number) {
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, number);
  return error == std::errc() && stop == end && begin != end;
}

json::value to_scalar(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return json::value(text);  // quoted
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL")
    return nullptr;
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  if (int64_t number = 0; read_whole(text, number)) return number;
  const bool may_be_number = text.find_first_of("0123456789") != std::string::npos;
  if (double number = 0; may_be_number && read_whole(text, number)) return number;
  return json::value(text);
}

/// Turns nodes into values. An alias becomes a copy of what it names, so a small file can stand for
/// more values than there is memory: what all copies together may hold is bounded.
class Expansion {
 public:
  json::value to_json(const YAML::Node& node, int depth = 0) {
    if (depth > kDeepest) throw YAML::Exception(node.Mark(), "nested too deeply");
    count(node);
    if (node.IsSequence()) {
      json::array list;
      for (const YAML::Node& element : node) list.push_back(to_json(element, depth + 1));
      return list;
    }
    if (node.IsMap()) {
      json::object map;
      for (const auto& entry : node) {
        if (!entry.first.IsScalar())
          throw YAML::Exception(entry.first.Mark(), "a key should be a word");
        count(entry.first);
        map[entry.first.Scalar()] = to_json(entry.second, depth + 1);
      }
      return map;
    }
    return node.IsScalar() ? to_scalar(node) : json::value();
  }

 private:
  void count(const YAML::Node& node) {
    num_nodes_ += 1 + (node.IsScalar() ? node.Scalar().size() / kNodeBytes : 0);
    if (num_nodes_ > kMostNodes) {
      throw YAML::Exception(
          node.Mark(), fmt::format("more than {} nodes once its aliases are expanded", kMostNodes));
    }
  }

  std::size_t num_nodes_ = 0;
};

}  // namespace

json::value read_yaml_file(const std::string& path, const std::string& key) {
  try {
    return Expansion().to_json(YAML::LoadFile(path));
  } catch (const YAML::Exception& error) {
    throw ConfigError(fmt::format("{} {}: {}", key, path, error.what()));
  }
}

json::value parse_yaml(const std::string& text, const std::string& where) {
  try {
    return Expansion().to_json(YAML::Load(text));
  } catch (const YAML::Exception& error) {
    throw ConfigError(fmt::format("{}: {}", where, error.what()));
  }
}

}  // namespace slime::config
