quarrel_test(gguf_test LABEL unit
  SOURCES
    gguf_file_test.cpp
    gguf_malformed_test.cpp
    gguf_split_test.cpp
  LINKS quarrel_gguf quarrel_test_support)
quarrel_test(gguf_heap_test LABEL unit SOURCES gguf_heap_test.cpp LINKS quarrel_gguf)
