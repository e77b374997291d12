#pragma once

/// A flag's value that knows whether the run has read it.
///
/// A member of the configuration is a `Flag<T>`: to whoever reads it a T, by conversion or by the
/// functions of T that are forwarded here, and each such look is recorded. Copies of a configuration
/// share the record, so that what a copy reads the run has read. What parses, prints and writes flags
/// looks with `peek()`, which records nothing, and validation forgets its own looks when it ends
/// (config/flag_reads.h). A value that stands for another flag's says so with `stems_from`.
///
///   Flag<double> gamma{1.0};                       // in config/run_config.h
///   gae.gamma = config.gamma;                      // records a read
///   config.global_batch_size = 8;                  // a value from elsewhere
///   config.global_batch_size.stems_from(config.num_steps_per_rollout);  // read with it
///
/// A flag that was moved from keeps its value and its record: moving copies. A Flag<bool> becomes a
/// bool and nothing else, so that no number or JSON is made of it by mistake; write `.get()` there.
///
/// Reading is thread-safe; setting and `stems_from` belong to parsing and validation, on one thread.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <concepts>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace slime::config {

/// Whether a value was read, and what it was made of.
class ReadRecord {
 public:
  void read() {
    if (is_read_.load(std::memory_order_relaxed)) return;
    is_read_.store(true, std::memory_order_relaxed);
    for (const auto& source : sources_) source->read();
  }
  bool is_read() const { return is_read_.load(std::memory_order_relaxed); }
  void forget() { is_read_.store(false, std::memory_order_relaxed); }
  void add_source(std::shared_ptr<ReadRecord> source) {
    if (source.get() != this) sources_.push_back(std::move(source));
  }

 private:
  std::atomic<bool> is_read_ = false;
  std::vector<std::shared_ptr<ReadRecord>> sources_;
};

template <typename T>
class Flag;
template <typename T>
inline constexpr bool kIsFlag = false;
template <typename T>
inline constexpr bool kIsFlag<Flag<T>> = true;

/// What a flag may be set to: a T, or what becomes one; another flag is copied with its record.
template <typename From, typename T>
concept FlagValue = !kIsFlag<std::remove_cvref_t<From>> && std::convertible_to<From, T>;

template <typename T>
class Flag {
 public:
  using Value = T;

  Flag() = default;
  // Without moves: a flag always has a record.
  Flag(const Flag&) = default;
  Flag& operator=(const Flag&) = default;
  ~Flag() = default;
  template <FlagValue<T> From>
  explicit Flag(From&& value) : value_(static_cast<T>(std::forward<From>(value))) {}
  template <FlagValue<T> From>
  Flag& operator=(From&& value) {
    value_ = static_cast<T>(std::forward<From>(value));
    return *this;
  }
  Flag& operator=(T value) {
    value_ = std::move(value);
    return *this;
  }

  /// The value; records the read.
  const T& get() const {
    record_->read();
    return value_;
  }
  operator const T&() const requires(!std::same_as<T, bool>)  // NOLINT: implicit
  {
    return get();
  }
  template <std::same_as<T> Bool>
  operator Bool() const requires std::same_as<T, bool>  // NOLINT: implicit
  {
    return get();
  }
  /// The value for parsing, printing, comparing: no read.
  const T& peek() const { return value_; }
  /// The value to be changed in place.
  T& change() { return value_; }
  void clear() requires requires(T& t) { t.clear(); }
  { value_.clear(); }

  bool is_read() const { return record_->is_read(); }
  void forget_read() const { record_->forget(); }
  /// From now on whoever reads this has read `other` too.
  template <typename Other>
  void stems_from(const Flag<Other>& other) {
    record_->add_source(other.record_);
  }
  /// A record of its own, for a copy that stands for another word of the user's.
  void separate() { record_ = std::make_shared<ReadRecord>(); }

  // Of texts and lists.
  auto empty() const requires requires(const T& t) { t.empty(); }
  { return get().empty(); }
  auto size() const requires requires(const T& t) { t.size(); }
  { return get().size(); }
  auto begin() const requires requires(const T& t) { t.begin(); }
  { return get().begin(); }
  auto end() const requires requires(const T& t) { t.end(); }
  { return get().end(); }
  const auto& front() const requires requires(const T& t) { t.front(); }
  { return get().front(); }
  const auto& operator[](std::size_t index) const requires requires(const T& t) { t[index]; }
  { return get()[index]; }

  // Of texts.
  bool starts_with(std::string_view text) const requires std::same_as<T, std::string> {
    return get().starts_with(text);
  }
  bool ends_with(std::string_view text) const requires std::same_as<T, std::string> {
    return get().ends_with(text);
  }
  std::size_t find(std::string_view text) const requires std::same_as<T, std::string> {
    return get().find(text);
  }
  operator std::string_view() const requires std::same_as<T, std::string>  // NOLINT: implicit
  {
    return get();
  }
  operator std::filesystem::path() const requires std::same_as<T, std::string>  // NOLINT: implicit
  {
    return get();
  }

  // Of values that may be missing.
  bool has_value() const requires requires(const T& t) { t.has_value(); }
  { return get().has_value(); }
  explicit operator bool() const requires requires(const T& t) { t.has_value(); }
  { return get().has_value(); }
  const auto& operator*() const requires requires(const T& t) { *t; }
  { return *get(); }
  template <typename Else>
  auto value_or(Else&& otherwise) const requires requires(const T& t) {
    t.value_or(otherwise);
  }
  { return get().value_or(std::forward<Else>(otherwise)); }

  friend bool operator==(const Flag& a, const Flag& b) { return a.get() == b.get(); }
  /// With what a T can be made of: iterators over flags find this operator too.
  template <typename U>
  requires(!kIsFlag<U> && std::constructible_from<T, const U&>) friend bool operator==(
      const Flag& flag, const U& value) {
    return flag.get() == value;
  }
  friend std::string operator+(const char* text,
                               const Flag& flag) requires std::same_as<T, std::string> {
    return text + flag.get();
  }
  friend std::string operator+(std::string text,
                               const Flag& flag) requires std::same_as<T, std::string> {
    return std::move(text) + flag.get();
  }
  friend std::string operator+(const Flag& flag,
                               std::string_view text) requires std::same_as<T, std::string> {
    return flag.get() + std::string(text);
  }

 private:
  template <typename>
  friend class Flag;

  T value_{};
  std::shared_ptr<ReadRecord> record_ = std::make_shared<ReadRecord>();
};

}  // namespace slime::config

template <typename T>
struct fmt::is_range<slime::config::Flag<T>, char> : std::false_type {};

template <typename T>
struct fmt::formatter<slime::config::Flag<T>> : fmt::formatter<T> {
  auto format(const slime::config::Flag<T>& flag, fmt::format_context& context) const {
    return fmt::formatter<T>::format(flag.get(), context);
  }
};
