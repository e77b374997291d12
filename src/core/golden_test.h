#pragma once

/// Golden files as named tests: one test per case of tests/golden/FILE (README there), so that a
/// case that breaks is named by the test runner. Included by tests only.
///
///   GOLDEN_TEST(KarmarkarKarp, "karmarkar_karp.json") { EXPECT_EQ(..., c.at("expected")); }
///
/// makes the tests GoldenKarmarkarKarp.<name of the case>; `c` is the case, {name, params, inputs,
/// expected}.

#include <gtest/gtest.h>

#include <cctype>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "core/json.h"

namespace slime::golden {

/// Files of tests/golden that tests were made of, and of how many cases each.
inline std::map<std::string, std::size_t>& registered_files() {
  static std::map<std::string, std::size_t> files;
  return files;
}

using CaseBody = std::function<void(const json::object& c)>;

class CaseTest final : public testing::Test {
 public:
  CaseTest(CaseBody body, json::object c) : body_(std::move(body)), case_(std::move(c)) {}
  void TestBody() override { body_(case_); }

 private:
  CaseBody body_;
  json::object case_;
};

/// Registers the cases of `file`; a file that cannot be read, or without cases, is a failing test.
/// `suffix` goes to the end of each name.
inline bool register_cases(const std::string& suite, const std::string& file, const CaseBody& body,
                           const char* source, int line, const std::string& suffix = "") {
  const auto add = [&](const std::string& name, CaseBody case_body, json::object c) {
    testing::RegisterTest(suite.c_str(), name.c_str(), nullptr, nullptr, source, line,
                          [case_body = std::move(case_body), c = std::move(c)]() -> testing::Test* {
                            return new CaseTest(case_body, c);
                          });
  };
  const auto fail = [&](const std::string& why) {
    add("File" + suffix, [why](const json::object&) { FAIL() << why; }, {});
    return false;
  };
  try {
    const json::value cases = read_json_file(SLIME_SOURCE_DIR "/tests/golden/" + file);
    if (cases.as_array().empty()) return fail(file + " has no cases");
    std::set<std::string> names;
    for (const json::value& value : cases.as_array()) {
      std::string name(value.at("name").as_string());
      for (char& letter : name) {
        if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
      }
      while (!names.insert(name).second) name += '_';
      add(name + suffix, body, value.as_object());
    }
    registered_files()[file] = names.size();
  } catch (const std::exception& error) {
    return fail(error.what());
  }
  return true;
}

}  // namespace slime::golden

#define GOLDEN_TEST(suite, file)                                                                  \
  static void suite##_golden(const ::slime::json::object& c);                                     \
  [[maybe_unused]] static const bool suite##_registered =                                         \
      ::slime::golden::register_cases("Golden" #suite, file, suite##_golden, __FILE__, __LINE__); \
  static void suite##_golden([[maybe_unused]] const ::slime::json::object& c)
