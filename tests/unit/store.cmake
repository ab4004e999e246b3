quarrel_test(store_test LABEL unit
  SOURCES
    store_names_test.cpp
    store_pull_test.cpp
    store_registry_test.cpp
    store_settings_test.cpp
    store_test.cpp
  LINKS quarrel_store quarrel_test_support)
