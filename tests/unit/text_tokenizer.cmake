find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)

quarrel_test(tokenizer_test LABEL unit
  SOURCES
    channel_filter_test.cpp
    text_stream_test.cpp
    tokenizer_golden_test.cpp
    tokenizer_hostile_test.cpp
    tokenizer_pre_test.cpp
    tokenizer_special_test.cpp
    tokenizer_steps_test.cpp
    tokenizer_unigram_test.cpp
    tokenizer_wordpiece_test.cpp
  LINKS quarrel_text quarrel_gguf PkgConfig::PCRE2)
