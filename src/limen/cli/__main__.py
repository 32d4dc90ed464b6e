from limen.cli import main

main()
