// {fmt}'s functions, compiled once. LibTorch's wheel brings the headers alone, and as a header-only library every file that
// formats compiles them again: five seconds each.
#include <fmt/format-inl.h>

namespace fmt {

template locale_ref::locale_ref(const std::locale& loc);

namespace detail {

template dragonbox::decimal_fp<float> dragonbox::to_decimal(float x) noexcept;
template dragonbox::decimal_fp<double> dragonbox::to_decimal(double x) noexcept;
template thousands_sep_result<char> thousands_sep_impl(locale_ref);
template thousands_sep_result<wchar_t> thousands_sep_impl(locale_ref);
template char decimal_point_impl(locale_ref);
template wchar_t decimal_point_impl(locale_ref);

}  // namespace detail
}  // namespace fmt
